#pragma once
// A table of V rows, one a token id. V is a run-time size.

#include "calm/base/token.hpp"
#include "calm/nn/param.hpp"

namespace calm {

// Row i is the vector of token id i. It starts as normal(0, 0.02) and has no layer's `inputs`: it takes ids.
template <index_t D, class Space = space<>> struct embedding {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    param<extents<dyn, D>, Space> weight;  // (V, D)

    // Of V = vocabulary rows, without memory until `allocate` gives it some.
    explicit embedding(index_t vocabulary) :
        weight(make_param<extents<dyn, D>, Space>(role::weight, extents<dyn, D>(vocabulary))) {}

    [[nodiscard]] index_t vocabulary() const { return weight.value.extent(0); }  // V: ids are 0 .. V - 1

    struct saved {
        row_ids<Backend> ids;          // (R)
        matrix_view<T, D, Backend> y;  // (R, D)
    };

    // y (R, D) of ids (R). Throws errc::tokenizer for an id outside the table; unless the ids are known to be good, it
    // waits for a device.
    saved forward(context<Backend>& ctx, row_ids<Backend> const& ids) const {
        saved const s{ids, ctx.saved.template take<T>(extents<dyn, D>(ids.size()))};
        gather_rows(ctx, s.y, weight.read(), ids);
        return s;
    }
    // Adds each row of dy (R, D) to the gradient of the row of its id, in a fixed order.
    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy) {
        scatter_add_rows(ctx, weight.gradient(), dy, s.ids);
    }

    template <class Visitor> void visit(Visitor& visitor) { visitor("weight", weight); }
};

}  // namespace calm
