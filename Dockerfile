# syntax=docker/dockerfile:1
# SPDX-License-Identifier: Apache-2.0
# The one image of gpuloom: agent, scheduler, executor, shim, the software GPU and what `helm test` runs, in /opt/gpuloom.
#   docker build --build-context cuda=/usr/local/cuda --build-arg GPULOOM_COMMIT=$(git rev-parse --short=12 HEAD) \
#     -t REGISTRY/gpuloom:VERSION .
# The build context `cuda` is a CUDA Toolkit 13.0: its headers, its nvcc and its stub of libcuda are used.
# NVIDIA's driver is never part of it: the nvidia runtime class puts it into the agent's and the schedulers' pods.

FROM debian:12 AS build
COPY --from=cuda bin /usr/local/cuda/bin
COPY --from=cuda include /usr/local/cuda/include
COPY --from=cuda lib64/stubs /usr/local/cuda/lib64/stubs
WORKDIR /src
# First alone, so that a change of the sources does not install everything again.
COPY deploy/install-deps.sh deploy/install-deps.sh
RUN deploy/install-deps.sh
COPY . .
# The context has no .git (.dockerignore), so the commit that --version names must be said.
ARG GPULOOM_COMMIT=
RUN cmake --preset release -DGPULOOM_CUDA_PROGRAMS=OFF \
 && cmake --build --preset release --target gpuloom gpuloom-agent gpuloom-scheduler gpuloom-executor gpuloom_nvml \
      gpuloom_shim gpuloom-trace gpuloom_softgpu gpuloom-library-probe \
 && mkdir -p /opt/gpuloom/bin /opt/gpuloom/lib/softgpu \
 && cp build/release/bin/gpuloom build/release/bin/gpuloom-agent build/release/bin/gpuloom-scheduler \
      build/release/bin/gpuloom-executor build/release/tests/gpuloom-library-probe /opt/gpuloom/bin/ \
 && cp build/release/lib/libgpuloom.so build/release/lib/libgpuloom-nvml.so build/release/lib/gpuloom-trace /opt/gpuloom/lib/ \
 && cp -L build/release/lib/softgpu/libcuda.so.1 /opt/gpuloom/lib/softgpu/ \
 && cp /usr/share/doc/libyaml-cpp-dev/copyright /opt/gpuloom/LICENSE.yaml-cpp \
 && strip /opt/gpuloom/bin/* /opt/gpuloom/lib/gpuloom-trace /opt/gpuloom/lib/softgpu/libcuda.so.1 \
 && deploy/sbom.py --build build/release --root /opt/gpuloom -o gpuloom.spdx.json \
 && cp gpuloom.spdx.json /opt/gpuloom/

FROM debian:12-slim
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends libcurl4 libgrpc++1.51 libprotobuf32 libprometheus-cpp-core1.0 libspdlog1.10 \
      libzstd1 liblz4-1 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/gpuloom /opt/gpuloom
ARG GPULOOM_COMMIT=
LABEL org.opencontainers.image.revision=$GPULOOM_COMMIT
COPY LICENSE /opt/gpuloom/LICENSE
ENV PATH=/opt/gpuloom/bin:$PATH
ENTRYPOINT ["/opt/gpuloom/bin/gpuloom-agent"]
