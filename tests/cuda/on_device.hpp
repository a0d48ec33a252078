#pragma once
// Shared code of the programs in this folder, which compute on a device and on the host and compare. Compiled by nvcc,
// the device is a GPU; without one the program says why and exits with 77, CTest's skip status. Other compilers use the
// emulated device.

#include <cmath>
#include <cstdio>
#include <vector>

#ifdef __CUDACC__
#include "calm/cuda.hpp"
#else
#include "calm/emulated.hpp"
#endif
#include "calm/nn/param.hpp"

namespace calm::test {

#ifdef __CUDACC__
using device_backend = cuda;
#else
using device_backend = emulated;
#endif

inline int failures = 0;

inline void check(bool good, char const* what) {
    if (good) return;
    ++failures;
    std::fprintf(stderr, "failed: %s\n", what);
}

// Element-wise |got - want| <= bound * max(1, |want|); NaN never passes.
template <class T>
void check_near(char const* what, std::vector<T> const& got, std::vector<T> const& want, double bound) {
    bool good = got.size() == want.size();
    for (std::size_t i = 0; good && i < got.size(); ++i) {
        auto const a = static_cast<double>(got[i]);
        auto const b = static_cast<double>(want[i]);
        good = std::abs(a - b) <= bound * std::fmax(1.0, std::abs(b));
        if (!good) std::fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", what, i, a, b);
    }
    check(good, what);
}

inline std::vector<float> draws(index_t n, std::uint64_t seed) {
    std::vector<float> x(static_cast<std::size_t>(n));
    normals(x.data(), n, key{seed, stream::evaluation, 0});
    return x;
}

// Copies numbers of the host to the memory of a context, and back.
template <class T, class Shape, class Backend>
view<T, Shape, Backend> given(context<Backend>& ctx, std::vector<T> const& x, Shape const& shape) {
    auto const taken = ctx.saved.template take<T>(shape);
    if constexpr (host_memory<Backend>)
        std::copy(x.begin(), x.end(), taken.data());
    else
        copy(ctx, taken, view<T const, Shape>(x.data(), shape));
    return taken;
}
template <class T, class Shape, class Backend>
std::vector<std::remove_const_t<T>> taken_back(context<Backend>& ctx, view<T, Shape, Backend> const& x) {
    std::vector<std::remove_const_t<T>> room;
    auto const values = to_host(ctx, x, room);
    return {values.begin(), values.end()};
}

// Runs f(ctx) on the device twice, with bit-identical results (the emulated device changes its thread order), and on a
// host backend, within the bound. Returns the device's vector.
template <class Host, class F> auto compare(char const* what, double bound, F const& f) {
    context<device_backend> device(1);
    context<Host> host(1, 1);
    auto const got = f(device);
    device.saved.clear();
#ifndef __CUDACC__
    device.order = thread_order::permuted;
#endif
    check(got == f(device), what);
    check_near(what, got, f(host), bound);
    device.saved.clear();
#ifdef __CUDACC__
    check(device.unsupported_products() == 0, "every product is one of cuBLASLt");
#endif
    device.wait();
    return got;
}

// Checks that f() throws an error with this code.
template <class F> void check_refused(char const* what, errc code, F const& f) {
    try {
        f();
        check(false, what);
    } catch (error const& e) {
        check(e.code() == code, e.what());
    }
}

// The exit status of a program that runs f.
template <class F> int on_device(F const& f) {
#ifdef __CUDACC__
    if (auto const reason = no_device_reason(); !reason.empty()) {
        check_refused("a context without a device", errc::device, [] { context<cuda> const ctx; });
        check_refused("memory without a device", errc::device, [] { tensor<float, extents<3>, cuda> const x; });
        std::fprintf(stderr, "skipped: %s\n", reason.c_str());
        return failures == 0 ? 77 : 1;
    }
#endif
    try {
        f();
    } catch (std::exception const& e) {
        check(false, e.what());
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace calm::test
