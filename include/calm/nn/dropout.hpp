#pragma once
// Dropout: y = x * keep / (1 - rate), with keep drawn from a keyed random stream. Srivastava et al. 2014. Each dropout
// layer of a model has a number, which gives it an independent mask. Splitting a step into equal micro-batches does not
// change the masks.

#include "calm/nn/param.hpp"
#include "calm/tensor/expr/expr.hpp"

namespace calm {

// Dropout on rows of width D.
template <index_t D, class Space = space<>> struct dropout {
    using space_type = Space;
    using T = typename Space::storage;
    using Backend = typename Space::backend;
    using scalar = T;
    static constexpr index_t inputs = D;
    static constexpr index_t outputs = D;
    static constexpr double flops(double = 0) { return 0; }  // no matrix products

    double rate = 0;                 // the probability that an element is dropped, in [0, 1)
    index_t number = -1;             // index among the model's dropout layers, from 0; equal numbers share a mask
    stream draws = stream::dropout;  // with the context's seed and step, determines the mask
    bool training = true;            // if false, y = x

    struct saved_activations {
        matrix_view<T, D, Backend> scale;  // (R, D): 0 or 1 / (1 - rate)
        matrix_view<T, D, Backend> y;      // (R, D)
    };

    // y (R, D) of x (R, D). Throws errc::usage for a rate outside [0, 1).
    saved_activations forward(context<Backend>& ctx, matrix_view<T const, D, Backend> const& x) const {
        require(rate >= 0 && rate < 1, errc::usage, "calm::dropout: expected a rate in [0, 1), found ", rate);
        saved_activations const s{ctx.saved.template take<T>(x.extents()), ctx.saved.template take<T>(x.extents())};
        if (training && rate > 0)
            fill_bernoulli_keep(ctx, s.scale, ctx.random(draws), static_cast<float>(rate),
                                static_cast<T>(1 / (1 - rate)), first_of(ctx, s.scale.size()));
        else
            fill(ctx, s.scale, T{1});
        evaluate(ctx, s.y, x * s.scale);
        return s;
    }
    void backward(context<Backend>& ctx, saved_activations const& s, matrix_view<T const, D, Backend> const& dy,
                  matrix_view<T, D, Backend> const& dx) {
        evaluate(ctx, dx, dy * s.scale);
    }
    template <class Visitor> void visit(Visitor&) {}

private:
    static constexpr int bits = 40;  // at most 2^bits elements per layer and step

    // RNG counter at which this layer's mask starts for the current micro-batch.
    [[nodiscard]] rng_counter first_of(context<Backend> const& ctx, index_t size) const {
        index_t const micro_batch = ctx.micro_batch;
        constexpr index_t numbers = index_t{1} << (64 - bits);
        require(number >= 0 && number < numbers, errc::usage, "calm::dropout: expected a number from 0 to ",
                numbers - 1, ", a different one for each dropout layer of a model, found ", number, "; set .number");
        require(micro_batch >= 0 && size <= (index_t{1} << bits) / (micro_batch + 1), errc::usage,
                "calm::dropout: expected a step of at most 2^", bits, " elements, found micro-batch ", micro_batch,
                " of ", size, " elements");
        return ctx.number_in_step(size) + (static_cast<std::uint64_t>(number) << bits);
    }
};

}  // namespace calm
