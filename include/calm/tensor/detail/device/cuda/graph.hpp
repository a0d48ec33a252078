#pragma once
// Captured work as CUDA graphs.

#ifdef __CUDACC__

#include <memory>
#include <type_traits>

#include "calm/tensor/detail/device/graph.hpp"
#include "calm/tensor/device/cuda/context.hpp"

namespace calm {

// Captures the stream of the process; meanwhile no other thread may start GPU work. The work must have run once before
// without a graph: then its kernels are loaded, and cuBLASLt has chosen its algorithms.
template <> class device_graph<cuda> {
public:
    // Captures work. Throws errc::device, with CUDA's text.
    template <class Work>
    device_graph(context<cuda> const& ctx, Work const& work, std::size_t room) :
        capture_(room), room_(detail::pinned_memory(room)), was_read_(detail::new_event()) {
        detail::current_device const here;
        detail::check_cuda(cudaStreamBeginCapture(ctx.queue(), cudaStreamCaptureModeThreadLocal), tried);
        cudaGraph_t captured = nullptr;
        try {
            do_recorded(ctx, work);
        } catch (...) {
            (void)cudaStreamEndCapture(ctx.queue(), &captured);
            (void)cudaGraphDestroy(captured);
            (void)cudaGetLastError();
            throw;
        }
        detail::check_cuda(cudaStreamEndCapture(ctx.queue(), &captured), tried);
        cudaGraphExec_t runs = nullptr;
        cudaError_t const made = cudaGraphInstantiate(&runs, captured, 0);
        (void)cudaGraphDestroy(captured);
        detail::check_cuda(made, tried);
        runs_.reset(runs);
    }

    // Calls work() to update the bytes of its copies; nothing else runs. First waits until the last launch has read
    // them.
    template <class Work> void update(context<cuda> const& ctx, Work const& work) {
        detail::current_device const here;
        if (room_) detail::check_cuda(cudaEventSynchronize(was_read_.get()), "waiting for a graph");
        do_recorded(ctx, work);
    }
    // Launches the graph after all earlier work.
    void launch(context<cuda> const& ctx) const {
        detail::current_device const here;
        detail::check_cuda(cudaGraphLaunch(runs_.get(), ctx.queue()),
                           "starting a graph, or running a kernel before it");
        if (room_) detail::check_cuda(cudaEventRecord(was_read_.get(), ctx.queue()), "marking the end of a graph");
    }

private:
    static constexpr char const* tried =
        "capturing a graph (CALM_CUDA_GRAPHS=0 in the environment launches each kernel by itself)";
    struct destroy {
        void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
    };

    template <class Work> void do_recorded(context<cuda> const& ctx, Work const& work) {
        auto& queue = ctx.order();
        queue.record(&capture_, room_.get());
        try {
            work();
        } catch (...) {
            queue.record(nullptr, nullptr);
            capture_.give_up();
            throw;
        }
        queue.record(nullptr, nullptr);
        capture_.end();
    }

    detail::graph_capture capture_;
    detail::pinned_bytes room_;  // null if nothing is copied
    detail::owned_event was_read_;
    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, destroy> runs_;
};

}  // namespace calm

#endif
