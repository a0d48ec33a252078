#pragma once
// Counts kernel launches. On a GPU: the library's own kernels, and each call of cuBLASLt or cuDNN as one.

#include "device.hpp"

namespace bench {

// The number of launches by f.
template <class F> index_t launches_of([[maybe_unused]] device_context& ctx, F const& f) {
#ifdef __CUDACC__
    index_t launched = 0;
    ctx.order().watch = [&](char const*, index_t, std::uint64_t) { ++launched; };
    f();
    ctx.order().watch = nullptr;
    return launched;
#else
    index_t const before = device_context::counts().launches;
    f();
    return device_context::counts().launches - before;
#endif
}

}  // namespace bench
