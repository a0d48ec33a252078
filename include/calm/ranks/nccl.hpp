#pragma once
/// \file
/// The NCCL library for nccl_transport.hpp. Empty without <nccl.h>; links NCCL and the CUDA runtime (the CMake target
/// calm::nccl).
/// \shows{tests/cuda/host/nccl_test.cu,one_rank_begins_and_ends}

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <utility>

#include "calm/ranks/detail/nccl_transport.hpp"

namespace calm {

/// A communicator, from begin() to close() or abort(), on one stream of one GPU. No other rank may use this GPU: NCCL
/// refuses two ranks on one.
class nccl_library {
public:
    using key = ncclUniqueId;  ///< made by one rank, given to all

    /// Uses a stream of GPU number `device`.
    nccl_library(cudaStream_t queue, int device) : queue_(queue), device_(device) {}

    nccl_state make_key(key& made) { return noted(ncclGetUniqueId(&made)); }
    /// Creates a non-blocking communicator: its work may still be in flight when a call returns, and state() reports
    /// progress.
    nccl_state begin(key const& of_all, int rank, int ranks) {
        int before = 0;
        if (noted(cudaGetDevice(&before)) == nccl_state::failed || noted(cudaSetDevice(device_)) == nccl_state::failed)
            return nccl_state::failed;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        auto const now = noted(ncclCommInitRankConfig(&communicator_, ranks, of_all, rank, &config));
        (void)cudaSetDevice(before);
        return now;
    }
    /// All messages between begin_group() and end_group() start together.
    nccl_state begin_group() { return noted(ncclGroupStart()); }
    nccl_state send(void const* from, std::size_t bytes, int to) {
        return noted(ncclSend(from, bytes, ncclUint8, to, communicator_, queue_));
    }
    nccl_state receive(void* to, std::size_t bytes, int from) {
        return noted(ncclRecv(to, bytes, ncclUint8, from, communicator_, queue_));
    }
    nccl_state end_group() { return noted(ncclGroupEnd()); }
    /// State of the last call, including asynchronous errors.
    nccl_state state() {
        auto now = ncclSuccess;
        auto const asked = communicator_ == nullptr ? ncclSuccess : ncclCommGetAsyncError(communicator_, &now);
        return noted(asked == ncclSuccess ? now : asked);
    }
    /// State of the stream.
    nccl_state queue_state() { return noted(cudaStreamQuery(queue_)); }
    /// Completes all sends; close() follows.
    nccl_state finish() { return noted(ncclCommFinalize(communicator_)); }
    void close() { (void)ncclCommDestroy(std::exchange(communicator_, nullptr)); }
    /// Ends the communicator at once.
    void abort() {
        if (communicator_ != nullptr) (void)ncclCommAbort(std::exchange(communicator_, nullptr));
    }
    /// The last error, in the words of NCCL or CUDA.
    [[nodiscard]] std::string why() const { return why_; }

private:
    nccl_state noted(ncclResult_t now) {
        if (now == ncclSuccess) return nccl_state::done;
        if (now == ncclInProgress) return nccl_state::in_flight;
        why_ = ncclGetErrorString(now);
        char const* const more = ncclGetLastError(communicator_);
        if (more != nullptr && *more != '\0') why_ += std::string(" (") + more + ")";
        return nccl_state::failed;
    }
    nccl_state noted(cudaError_t now) {
        if (now == cudaSuccess) return nccl_state::done;
        if (now == cudaErrorNotReady) return nccl_state::in_flight;
        (void)cudaGetLastError();
        why_ = cudaGetErrorString(now);
        return nccl_state::failed;
    }

    cudaStream_t queue_;
    int device_;
    ncclComm_t communicator_ = nullptr;
    std::string why_;
};

/// For ranks with GPUs: nccl_devices all(ranks, {ctx.queue(), ctx.device()}).
using nccl_devices = nccl_transport<nccl_library>;

}  // namespace calm

#endif
