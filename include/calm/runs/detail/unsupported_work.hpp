#pragma once
// Work that the libraries of a device could not do.

#include <cstdint>

namespace calm {

// How often the libraries of a device could not compute a product or attention, so that slower kernels did.
struct unsupported_work {
    std::int64_t products = 0;
    std::int64_t attentions = 0;
};
// By a context so far.
template <class Context> unsupported_work unsupported_by(Context const& ctx) {
    unsupported_work found;
    if constexpr (requires { ctx.unsupported_products(); }) found.products = ctx.unsupported_products();
    if constexpr (requires { ctx.unsupported_attentions(); }) found.attentions = ctx.unsupported_attentions();
    return found;
}

}  // namespace calm
