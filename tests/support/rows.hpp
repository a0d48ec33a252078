#pragma once
// Rows in the memory of a device, for device tests.

#include <cstdint>
#include <vector>

#include "calm/tensor/core/copy.hpp"
#include "calm/tensor/ops/fill.hpp"

namespace calm::test {

// Random normals (rows, Columns) in ctx.saved.
template <index_t Columns, class T = float, class Backend>
matrix_view<T, Columns, Backend> drawn_rows(context<Backend>& ctx, index_t rows, std::uint64_t seed) {
    auto const x = ctx.saved.template take<T>(extents<dyn, Columns>(rows));
    fill_normal(ctx, x, key{seed});
    return x;
}

// The elements of x, copied to the host.
template <class T, class E, class Backend>
std::vector<T> values_of(context<Backend> const& ctx, view<T, E, Backend> const& x) {
    std::vector<T> room;
    auto const here = to_host(ctx, x, room);
    return {here.begin(), here.end()};
}

}  // namespace calm::test
