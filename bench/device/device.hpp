#pragma once
// What the programs of this folder share. Each measures a device, which nvcc takes a GPU for and any other compiler the
// emulated one, at sizes of its own: its times say nothing, but all else is tried by them. A program compares with
// other kernels, or with the host, before it times, and ends where they differ. It prints one JSON object a line: a row
// of a table, or what a comparison found.

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
#include "calm/tensor/bf16_products.hpp"
#include "calm/tensor/total.hpp"

namespace bench {

using calm::index_t;
using device = calm::test::device_backend;
using device_context = calm::context<device>;
inline constexpr bool is_emulated = std::is_same_v<device, calm::emulated>;

// A size on a GPU, and on the emulated device.
constexpr index_t sized(index_t on_gpu, index_t emulated) {
    return is_emulated ? emulated : on_gpu;
}

// A context that multiplies in bf16 where it is asked for.
inline device_context context_of(bool in_bf16) {
    device_context ctx(1);
    if (in_bf16) multiply_in_bf16(ctx);
    return ctx;
}

// ---- what is said

struct field {
    char const* name;
    double value;
};
inline void say(char const* kind, std::string const& name, std::initializer_list<field> fields) {
    std::printf("{\"%s\": \"%s\"", kind, name.c_str());
    for (auto const& [key, value] : fields)
        std::isfinite(value) ? std::printf(", \"%s\": %.6g", key, value) : std::printf(", \"%s\": null", key);
    std::puts("}");
    std::fflush(stdout);
}
inline void say_row(std::string const& name, std::initializer_list<field> fields) {
    say("row", name, fields);
}

// Says how far apart two ways are that should agree. Throws errc::non_finite where it is more than the bound, or none.
inline void agree(std::string const& name, double difference, double bound) {
    say("check", name, {{"difference", difference}, {"bound", bound}});
    calm::require(difference <= bound, calm::errc::non_finite, name, ": expected a difference of at most ", bound,
                  " to what it is compared with, found ", difference, "; nothing of it was timed");
}
// |x - want| / |want| of floats on the device, by Euclid's norm.
template <class E1, class E2>
double difference_of(device_context& ctx, calm::view<float, E1, device> const& x,
                     calm::view<float, E2, device> const& want) {
    auto const sum = [&](auto const& expression) {
        return total_of(ctx, [&](auto const& total) { add_sum(ctx, total, expression()); });
    };
    double const apart = sum([&] { return (x - want) * (x - want); });
    return std::sqrt(apart / sum([&] { return want * want; }));
}
// What f(ctx) returns on the device, twice the same bits, the emulated one's blocks and threads in another order,
// beside the block kernels on the host: |got - want| at most bound * max(1, |want|). Throws as above.
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

// Says that a context left nothing to the block kernels that a library of the device was to compute. To be asked once
// all is timed: such work is slow, not wrong.
inline void left_nothing(std::string const& name, index_t products_and_attentions) {
    agree(name + ", products and attentions left to the block kernels", static_cast<double>(products_and_attentions),
          0);
}
inline index_t left_by(device_context const& ctx) {
    return ctx.unsupported_products() + ctx.unsupported_attentions();
}

// ---- times

// Seconds of the device from the beginning to the end of what f asks for.
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

// Of one call of f: the median of repeats of some calls each, after calls that nobody times. A repeat takes a
// millisecond or more, all of them a quarter of a second or little more than three.
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

// The exit status of a program: 77 where no GPU is.
template <class F> int run(F const& f) {
    return calm::test::on_device(f);
}

}  // namespace bench
