"""Define what the orchestrator and the worker exchange: one request file goes in, one result file comes out.

Every type here is a frozen dataclass. `scenarios.contract.codec` writes and reads them and checks their ranges. This
package needs the standard library only, because both sides import it. Times are in seconds unless the name ends in
`_ms`. Names that end in `_at` are readings of the monotonic clock.
"""
