#pragma once
// Products by cuBLASLt: one handle, its workspace, and the algorithm for each shape.

#ifdef __CUDACC__

#include <map>
#include <memory>
#include <optional>
#include <type_traits>

#include "calm/tensor/detail/device/cuda/lt_description.hpp"
#include "calm/tensor/detail/device/cuda/memory.hpp"
#include "calm/tensor/detail/ops/product.hpp"

namespace calm::detail {

#if __has_include(<cublasLt.h>)

// The part of cuBLASLt that needs a device. Tests give lt_products another one.
class lt_library {
public:
    lt_library() {
        current_device const here;
        cublasLtHandle_t handle = nullptr;
        check_blas(cublasLtCreate(&handle), "starting cuBLASLt");
        handle_.reset(handle);
        workspace_.reset(memory_of<cuda>::allocate(lt_workspace_bytes));
        require(workspace_ != nullptr, errc::memory, "calm::cuda: expected 32 MiB of free memory for cuBLASLt");
    }

    // Chooses the best algorithm for a description; `ways` becomes their number, 0 or 1.
    cublasStatus_t choose(lt_description& d, cublasLtMatmulHeuristicResult_t& way, int& ways) const {
        current_device const here;
        return cublasLtMatmulAlgoGetHeuristic(handle_.get(), &d.product, &d.first, &d.second, &d.result, &d.result,
                                              &d.wanted, 1, &way, &ways);
    }
    // c = alpha first second + beta plus, which may be c, and the bias if it is described.
    cublasStatus_t multiply(lt_description& d, cublasLtMatmulAlgo_t const& way, void const* alpha, void const* first,
                            void const* second, void const* beta, void const* addend, void* c,
                            cudaStream_t queue) const {
        current_device const here;
        return cublasLtMatmul(handle_.get(), &d.product, alpha, first, &d.first, second, &d.second, beta, addend,
                              &d.result, c, &d.result, &way, workspace_.get(), lt_workspace_bytes, queue);
    }

private:
    struct destroy {
        void operator()(cublasLtHandle_t handle) const { (void)cublasLtDestroy(handle); }
    };
    struct release {
        void operator()(void* p) const { memory_of<cuda>::release(p); }
    };
    std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, destroy> handle_;
    std::unique_ptr<void, release> workspace_;
};

// Matrix products; each shape is described, and its algorithm chosen, once.
template <class Library> class lt_products {
public:
    explicit lt_products(Library library = Library()) : library_(std::move(library)) {}

    // False, with nothing computed, if the library does not support the product. Throws errc::device for any other
    // failure. p is not empty.
    template <class T, class W> bool multiply(cudaStream_t queue, product<T, W, W> const& p) {
        auto& way = way_for(p);
        if (way) {
            using factor = typename lt_types<T, W>::factor;
            factor const one{1};
            factor const beta{p.accumulates || p.addend != nullptr ? factor{1} : factor{0}};
            T const* const addend = p.addend != nullptr ? p.addend : p.c;
            if (p.bias != nullptr) way->description.set_bias(p.bias);
            auto const done =
                library_.multiply(way->description, way->algorithm, &one, p.b, p.a, &beta, addend, p.c, queue);
            if (done == CUBLAS_STATUS_NOT_SUPPORTED)
                way.reset();
            else
                check(done, "computing", p);
        }
        if (!way) ++unsupported_;
        return way.has_value();
    }

    // Whether the library supports a product. Throws as `multiply` does.
    template <class T, class W> bool supports(product<T, W, W> const& p) { return way_for(p).has_value(); }

    // Number of products left to the block kernel.
    [[nodiscard]] index_t unsupported() const { return unsupported_; }
    // Number of known shapes.
    [[nodiscard]] index_t shapes() const { return static_cast<index_t>(ways_.size()); }

private:
    // Bounds the memory, as each prompt length is another shape.
    static constexpr std::size_t most_shapes = 4096;
    struct way_of_shape {
        lt_description description;
        cublasLtMatmulAlgo_t algorithm;
    };

    template <class T, class W> static void check(cublasStatus_t status, char const* tried, product<T, W, W> const& p) {
        if (status != CUBLAS_STATUS_SUCCESS)
            check_blas(status,
                       sentence(tried, " a product of (", p.m, ", ", p.k, ") and (", p.k, ", ", p.n, ")").c_str());
    }

    template <class T, class W> std::optional<way_of_shape>& way_for(product<T, W, W> const& p) {
        auto const shape = shape_of(p);
        if (auto const known = ways_.find(shape); known != ways_.end()) return known->second;
        if (ways_.size() >= most_shapes) ways_.clear();
        auto description = describe(p);
        cublasLtMatmulHeuristicResult_t way{};
        int ways = 0;
        auto const found = library_.choose(description, way, ways);
        bool const none = found == CUBLAS_STATUS_NOT_SUPPORTED || (found == CUBLAS_STATUS_SUCCESS && ways == 0);
        if (none) return ways_[shape] = std::nullopt;
        check(found, "choosing how to compute", p);
        check(way.state, "choosing how to compute", p);
        return ways_[shape] = way_of_shape{description, way.algo};
    }

    Library library_;
    std::map<lt_shape, std::optional<way_of_shape>> ways_;
    index_t unsupported_ = 0;
};

using blas = lt_products<lt_library>;

#else

class blas {
public:
    template <class T, class W> bool multiply(cudaStream_t, product<T, W, W> const&) {
        ++unsupported_;
        return false;
    }
    template <class T, class W> static bool supports(product<T, W, W> const&) { return false; }
    [[nodiscard]] index_t unsupported() const { return unsupported_; }

private:
    index_t unsupported_ = 0;
};

#endif

}  // namespace calm::detail

#endif
