# An image of `calm` with the configuration tiny for an NVIDIA GPU. It keeps nvcc, which compiles other sizes when they
# are first used. From the root of the sources: docker build -t calm-cuda -f apps/docker/cuda.Dockerfile .
FROM nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++-12 cmake ninja-build \
    libeigen3-dev libpcre2-dev libsimdjson-dev zlib1g-dev libzstd-dev nlohmann-json3-dev libtomlplusplus-dev \
    libboost-dev libssl-dev && rm -rf /var/lib/apt/lists/*
ENV CUDAHOSTCXX=g++-12
COPY . /calm
WORKDIR /calm
RUN cmake --preset quickstart -DCMAKE_CXX_COMPILER=g++-12 -DCALM_INSTRUCTIONS=x86-64-v3 -DCALM_CUDA=ON \
    -DCALM_CONFIGS="tiny;tiny-drafted;tiny-ar;text-drafted;tiny@cuda" && \
    cmake --build --preset quickstart --target calm && cmake --install build/quickstart --prefix /usr/local && \
    rm -rf build
WORKDIR /models
EXPOSE 8080
ENTRYPOINT ["calm"]
