#pragma once
// Times every algorithm that cuBLASLt's heuristic lists for a product; without cuBLASLt there are none.

#include "device.hpp"

namespace bench {

// Seconds; NaN if there is no algorithm.
struct lt_times {
    double first = NAN;   // of the heuristic's first algorithm
    double best = first;  // of the fastest algorithm
    int ways = 0;
};

#if defined(__CUDACC__) && __has_include(<cublasLt.h>)

class lt_ways {
public:
    static constexpr int most = 8;

    explicit lt_ways(device_context& ctx) :
        ctx_(ctx), workspace_(calm::extents<calm::dyn>(static_cast<index_t>(calm::detail::lt_workspace_bytes / 4))) {
        calm::detail::check_blas(cublasLtCreate(&handle_), "starting cuBLASLt");
    }
    ~lt_ways() { (void)cublasLtDestroy(handle_); }
    lt_ways(lt_ways const&) = delete;
    lt_ways& operator=(lt_ways const&) = delete;

    // Leaves the fastest algorithm's result in p.c. With `in_bf16`, p.a and p.b point to bf16 values.
    lt_times measure(calm::detail::product<float> const& p, bool in_bf16) {
        auto d = calm::detail::describe(p);
        if (in_bf16) {
            auto const layout = [](index_t rows, index_t columns, bool is_transposed, index_t stride) {
                return calm::detail::lt_layout(CUDA_R_16BF, is_transposed ? columns : rows,
                                               is_transposed ? rows : columns, stride);
            };
            d.first = layout(p.n, p.k, p.b_transposed, p.ldb);
            d.second = layout(p.k, p.m, p.a_transposed, p.lda);
        }
        cublasLtMatmulHeuristicResult_t found[most]{};
        int count = 0;
        auto const status = cublasLtMatmulAlgoGetHeuristic(handle_, &d.product, &d.first, &d.second, &d.result,
                                                           &d.result, &d.wanted, most, found, &count);
        lt_times times;
        if (status == CUBLAS_STATUS_NOT_SUPPORTED) return times;
        calm::detail::check_blas(status, "listing ways to compute");
        int fastest = 0;
        for (int i = 0; i < count; ++i) {
            if (found[i].state != CUBLAS_STATUS_SUCCESS || !multiply(d, found[i].algo, p)) continue;
            double const seconds = time_of(ctx_, [&] { multiply(d, found[i].algo, p); }).median;
            if (times.ways++ == 0) times.first = seconds;
            if (seconds >= times.best) continue;
            times.best = seconds;
            fastest = i;
        }
        if (times.ways > 0) multiply(d, found[fastest].algo, p);
        return times;
    }

private:
    // Returns false if the algorithm is not supported.
    bool multiply(calm::detail::lt_description& d, cublasLtMatmulAlgo_t const& way,
                  calm::detail::product<float> const& p) {
        float const one = 1, zero = 0;
        auto const status =
            cublasLtMatmul(handle_, &d.product, &one, p.b, &d.first, p.a, &d.second, &zero, p.c, &d.result, p.c,
                           &d.result, &way, workspace_.data(), calm::detail::lt_workspace_bytes, ctx_.queue());
        if (status != CUBLAS_STATUS_NOT_SUPPORTED) calm::detail::check_blas(status, "computing a product");
        return status == CUBLAS_STATUS_SUCCESS;
    }

    device_context& ctx_;
    cublasLtHandle_t handle_ = nullptr;
    calm::tensor<float, calm::extents<calm::dyn>, device> workspace_;
};

#else

class lt_ways {
public:
    explicit lt_ways(device_context&) {}
    static lt_times measure(calm::detail::product<float> const&, bool) { return {}; }
};

#endif

}  // namespace bench
