"""Search for the settings with which a framework runs a cell fastest on this machine.

`tune` searches once per objective: first training, then inference under the settings that training got. `search` is the
algorithm. It compares stock, the best settings so far (the base) and one candidate, which take short turns, because a
shared machine drifts by more than most settings gain. It first tries all settings together that are likely to gain,
then each other value on top of the base, then the base without each of its parts. A candidate that is faster in two
rounds of turns and computes the scenario's function is the new base. The result must beat stock significantly.

Each candidate is a trial, a process that works under its settings. `forked_trials` starts and controls the trials from
the worker's side: one `fork_server` process per allocator imports the framework, loads `shared_data` and forks for each
trial. `trial_process` is what the fork does. They talk through the types in `messages`.
"""
