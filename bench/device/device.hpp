#pragma once
// Shared code of the programs in this folder. Each measures a device: a GPU if compiled by nvcc, otherwise the emulated
// device. The emulated device has smaller sizes; its times mean nothing, but everything else is tested. Before timing,
// a program compares results with other kernels or with the host, and fails if they differ. It prints one JSON object
// per line: a table row or the result of a comparison.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../tests/cuda/on_device.hpp"
#include "../times.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/tensor/ops/total.hpp"

namespace bench {

using calm::index_t;
using device = calm::test::device_backend;
using device_context = calm::context<device>;
inline constexpr bool is_emulated = std::is_same_v<device, calm::emulated>;

// A size for the GPU, and one for the emulated device.
constexpr index_t sized(index_t on_gpu, index_t emulated) {
    return is_emulated ? emulated : on_gpu;
}

// A context that multiplies in bf16 on request.
inline device_context context_of(bool in_bf16) {
    device_context ctx(1);
    if (in_bf16) multiply_in_bf16(ctx);
    return ctx;
}

// ---- output

struct field {
    char const* name;
    double value;
};
inline void print_record(char const* kind, std::string const& name, std::initializer_list<field> fields) {
    std::printf("{\"%s\": \"%s\"", kind, name.c_str());
    for (auto const& [key, value] : fields)
        std::isfinite(value) ? std::printf(", \"%s\": %.6g", key, value) : std::printf(", \"%s\": null", key);
    std::puts("}");
    std::fflush(stdout);
}
inline void print_row(std::string const& name, std::initializer_list<field> fields) {
    print_record("row", name, fields);
}

// Reports the difference of two results that should agree. Throws errc::non_finite if it exceeds the bound or is NaN.
inline void agree(std::string const& name, double difference, double bound) {
    print_record("check", name, {{"difference", difference}, {"bound", bound}});
    calm::require(difference <= bound, calm::errc::non_finite, name, ": expected a difference of at most ", bound,
                  " to what it is compared with, found ", difference, "; nothing of it was timed");
}
// |x - want| / |want| of floats on the device, in the Euclidean norm.
template <class E1, class E2>
double difference_of(device_context& ctx, calm::view<float, E1, device> const& x,
                     calm::view<float, E2, device> const& want) {
    auto const sum = [&](auto const& expression) {
        return total_of(ctx, [&](auto const& total) { add_sum(ctx, total, expression()); });
    };
    double const apart = sum([&] { return (x - want) * (x - want); });
    return std::sqrt(apart / sum([&] { return want * want; }));
}
// Compares f(ctx) on the device with the block kernels on the host: |got - want| at most bound * max(1, |want|). It
// also runs twice on the device and must give identical bits; the emulated device permutes blocks and threads. Throws
// as above.
template <class F> void agree_with_host(std::string const& name, double bound, F const& f) {
    device_context there(1);
    calm::context<calm::blocks> here(1);
    auto const got = f(there);
    there.saved.clear();
#ifndef __CUDACC__
    there.order = calm::thread_order::permuted;
#endif
    bool const same = got == f(there);
    auto const want = f(here);
    double most = same && got.size() == want.size() ? 0 : NAN;
    for (std::size_t i = 0; i < want.size() && !std::isnan(most); ++i) {
        double const wanted{want[i]}, apart = std::abs(got[i] - wanted) / std::fmax(1.0, std::abs(wanted));
        most = apart <= most ? most : apart;
    }
    agree(name, most, bound);
}

// Requires that no operation fell back to the block kernels instead of a device library. Call after all timing: such
// operations are slow, not wrong.
inline void left_nothing(std::string const& name, index_t products_and_attentions) {
    agree(name + ", products and attentions left to the block kernels", static_cast<double>(products_and_attentions),
          0);
}
inline index_t left_by(device_context const& ctx) {
    return ctx.unsupported_products() + ctx.unsupported_attentions();
}

// ---- timing

// Device seconds from beginning to end of the work that f enqueues.
template <class F> double seconds_of(device_context const& ctx, F const& f) {
#ifdef __CUDACC__
    struct event {
        cudaEvent_t place{};
        event() { calm::detail::check_cuda(cudaEventCreate(&place), "opening an event"); }
        ~event() { (void)cudaEventDestroy(place); }
        event(event const&) = delete;
        event& operator=(event const&) = delete;
        void mark(cudaStream_t queue) const {
            calm::detail::check_cuda(cudaEventRecord(place, queue), "marking a time");
        }
    };
    static event const begin, end;
    begin.mark(ctx.queue());
    f();
    end.mark(ctx.queue());
    ctx.wait();
    float milliseconds = 0;
    calm::detail::check_cuda(cudaEventElapsedTime(&milliseconds, begin.place, end.place), "reading a time");
    return static_cast<double>(milliseconds) * 1e-3;
#else
    ctx.wait();
    double const start = now();
    f();
    ctx.wait();
    return now() - start;
#endif
}

// Times one call of f: the median of repeats of several calls each, after untimed calls. A repeat takes at least a
// millisecond. There are 3 to 15 repeats, which take a quarter second unless three take longer.
template <class F> spread time_of(device_context const& ctx, F const& f) {
    f();
    double const one = seconds_of(ctx, f);
    if (is_emulated) return {one, one, one};
    int const calls = std::clamp(static_cast<int>(1e-3 / one), 1, 100);
    int const repeats = std::clamp(static_cast<int>(0.25 / (one * calls)), 3, 15);
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i)
        times.push_back(seconds_of(ctx,
                                   [&] {
                                       for (int call = 0; call < calls; ++call) f();
                                   }) /
                        calls);
    return spread_of(times);
}

// Returns the exit status of a program: 77 if there is no GPU.
template <class F> int run(F const& f) {
    return calm::test::on_device(f);
}

}  // namespace bench
