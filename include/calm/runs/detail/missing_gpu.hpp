#pragma once
// Asks NVIDIA's driver for GPUs in a program that was compiled without CUDA.

#include <dlfcn.h>

#include <string>

#include "calm/base/error.hpp"

namespace calm {

// Why this machine lacks the GPU with that number, empty if it has it.
inline std::string missing_gpu(int number) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return "no GPU: this machine has no driver of NVIDIA";
    auto const start = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
    auto const count_gpus = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
    int count = 0;
    if (start == nullptr || count_gpus == nullptr || start(0) != 0 || count_gpus(&count) != 0 || count <= 0)
        return "no GPU: the driver of NVIDIA finds none";
    return number < count ? "" : sentence("no GPU ", number, ": this machine has GPUs 0 to ", count - 1);
}

}  // namespace calm
