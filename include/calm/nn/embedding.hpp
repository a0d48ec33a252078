#pragma once
/// \file
/// An embedding table with V rows, one for each token id. V is a run-time size.
/// \shows{tests/nn/embedding_test.cpp,gradients_by_the_complex_step}

#include "calm/base/token.hpp"
#include "calm/nn/param.hpp"

namespace calm {

/// Row i is the vector of token id i, initialised as normal(0, 0.02). It takes ids, so it has no `inputs`.
template <index_t D, class Space = space<>> struct embedding {
    using space_type = Space;
    using T = typename Space::scalar;
    using Backend = typename Space::backend;
    param<extents<dyn, D>, Space> weight;  ///< (V, D)

    /// A table of V = vocabulary rows, without memory until `allocate`.
    explicit embedding(index_t vocabulary) :
        weight(make_param<extents<dyn, D>, Space>(role::weight, extents<dyn, D>(vocabulary))) {}

    [[nodiscard]] index_t vocabulary() const { return weight.value.extent(0); }  ///< V: valid ids are 0 .. V - 1

    /// Saved activations, in ctx.saved.
    struct saved_activations {
        row_ids<Backend> ids;          ///< (R)
        matrix_view<T, D, Backend> y;  ///< (R, D)
    };

    /// y (R, D) of ids (R). Throws errc::tokenizer for an id outside the table. Synchronises with the device unless the
    /// ids were already validated.
    saved_activations forward(context<Backend>& ctx, row_ids<Backend> const& ids) const {
        saved_activations const s{ids, ctx.saved.template take<T>(extents<dyn, D>(ids.size()))};
        gather_rows(ctx, s.y, weight.read(), ids);
        return s;
    }
    /// Adds each row of dy (R, D) to the gradient row of its id, in a fixed order.
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy) {
        scatter_add_rows(ctx, weight.gradient(), dy, s.ids);
    }

    template <class Visitor> void visit(Visitor& visitor) { visitor("weight", weight); }
};

}  // namespace calm
