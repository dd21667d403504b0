ARG BASE
FROM ${BASE}
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
      ca-certificates git make python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home user
USER user
WORKDIR /home/user
