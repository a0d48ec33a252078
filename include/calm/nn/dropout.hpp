#pragma once
// Dropout: y = x * keep / (1 - rate), keep drawn from a keyed stream or given. Srivastava et al. 2014.

#include "calm/nn/param.hpp"
#include "calm/tensor/expr.hpp"

namespace calm {

// Of rows of D.
template <index_t D, class T = float, class Backend = cpu> struct dropout {
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;

    double rate = 0;                 // the probability that an element is dropped, in [0, 1)
    stream draws = stream::dropout;  // decides, with the context's seed and step, what is dropped
    bool training = true;            // otherwise y = x

    struct saved {
        matrix_view<T, D, Backend> scale;  // (R, D): 0 or 1 / (1 - rate)
        matrix_view<T, D, Backend> y;      // (R, D)
    };

    // y (R, D) of x (R, D). Throws errc::usage for a rate outside [0, 1).
    saved forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        require(rate >= 0 && rate < 1, errc::usage, "calm::dropout: expected a rate in [0, 1), found ", rate);
        saved const s{ctx.saved.template take<T>(x.extents()), ctx.saved.template take<T>(x.extents())};
        if (training)
            fill_bernoulli_keep(ctx, s.scale, ctx.random(draws), static_cast<float>(rate),
                                static_cast<T>(1 / (1 - rate)));
        else
            fill(ctx, s.scale, T{1});
        evaluate(ctx, s.y, x * s.scale);
        return s;
    }
    void backward(context<Backend>& ctx, saved const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        evaluate(ctx, dx, dy * s.scale);
    }
    template <class Visitor> void visit(Visitor&) {}
};

}  // namespace calm
