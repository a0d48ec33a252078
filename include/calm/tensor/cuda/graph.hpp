#pragma once
// Kernels that are recorded and asked for at once: CUDA graphs.

#ifdef __CUDACC__

#include <memory>
#include <type_traits>

#include "calm/tensor/cuda/context.hpp"
#include "calm/tensor/graph.hpp"

namespace calm {

// The stream of the process is captured: meanwhile no other thread may ask for anything. Its first run is to be behind
// one of the same work without a graph, in which kernels are loaded and cuBLASLt chooses its algorithms.
template <> class device_graph<cuda> {
public:
    template <class Work> static device_graph record(context<cuda> const& ctx, Work const& work) {
        detail::current_device const here;
        detail::check_cuda(cudaStreamBeginCapture(ctx.queue(), cudaStreamCaptureModeThreadLocal), tried);
        captured graph;
        try {
            work();
        } catch (...) {
            (void)graph.end(ctx.queue());
            (void)cudaGetLastError();
            throw;
        }
        detail::check_cuda(graph.end(ctx.queue()), tried);
        cudaGraphExec_t runs = nullptr;
        detail::check_cuda(cudaGraphInstantiate(&runs, graph.of, 0), tried);
        return device_graph(runs);
    }

    void launch(context<cuda> const& ctx) const {
        detail::current_device const here;
        detail::check_cuda(cudaGraphLaunch(runs_.get(), ctx.queue()), "starting a graph, or running a kernel before it");
    }

private:
    static constexpr char const* tried =
        "recording a graph (CALM_CUDA_GRAPHS=0 in the environment asks for each kernel by itself)";
    struct captured {
        cudaGraph_t of = nullptr;
        captured() = default;
        captured(captured const&) = delete;
        captured& operator=(captured const&) = delete;
        ~captured() {
            if (of != nullptr) (void)cudaGraphDestroy(of);
        }
        cudaError_t end(cudaStream_t queue) { return cudaStreamEndCapture(queue, &of); }
    };
    struct destroy {
        void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
    };
    explicit device_graph(cudaGraphExec_t runs) : runs_(runs) {}

    std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, destroy> runs_;
};

}  // namespace calm

#endif
