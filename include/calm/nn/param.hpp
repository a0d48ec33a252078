#pragma once
// Parameters: a value, its gradient, a role. Models are aggregates of layers; `visit` names every parameter once, and
// counting, initialisation, loading, saving, clipping, the optimizer and gradient checks all walk it.

#include <string>

#include "calm/tensor/expr.hpp"
#include "calm/tensor/fill.hpp"
#include "calm/tensor/rows.hpp"

namespace calm {

// How a parameter starts.
enum class role {
    weight,  // normal(0, 0.02)
    bias,    // 0
    gain,    // 1
    output,  // a weight that starts at 0
};

template <class T, class Extents, class Backend = cpu> struct param {
    using value_type = T;
    static constexpr std::size_t rank = Extents::rank;

    view<T, Extents, Backend> value{nullptr, Extents()};
    view<T, Extents, Backend> grad{nullptr, Extents()};
    role starts = role::weight;
    bool received_gradient = false;  // since the last update

    // Where backward adds the gradient.
    view<T, Extents, Backend> gradient() {
        received_gradient = true;
        return grad;
    }
    [[nodiscard]] view<T const, Extents, Backend> read() const { return value; }
    // Weight decay acts on matrices, not on biases and norms (spec 11).
    static constexpr bool decays = rank > 1;
};

template <class T, class Extents, class Backend = cpu>
param<T, Extents, Backend> make_param(role starts, Extents const& shape = Extents()) {
    return {{nullptr, shape}, {nullptr, shape}, starts, false};
}

// Calls visitor("prefix.name", p) where a layer says visitor("name", p).
template <class Visitor> auto prefixed(std::string prefix, Visitor& visitor) {
    return [prefix = std::move(prefix), &visitor](std::string const& name, auto& p) { visitor(prefix + name, p); };
}
template <class Layer, class Visitor> void visit_as(std::string const& name, Layer& layer, Visitor& visitor) {
    auto inner = prefixed(name + ".", visitor);
    layer.visit(inner);
}

// Gives every parameter of the model memory for its value and, if gradients is not null, for its gradient.
template <class Model, class Backend>
void allocate(Model& model, arena<Backend>& values, arena<Backend>* gradients) {
    auto give = [&]<class T, class E>(std::string const&, param<T, E, Backend>& p) {
        p.value = values.template take<T>(p.value.extents());
        if (gradients != nullptr) p.grad = gradients->template take<T>(p.grad.extents());
    };
    model.visit(give);
    auto clear = [&]<class T, class E>(std::string const&, param<T, E, Backend>& p) {
        std::fill_n(p.value.data(), p.value.size(), T{});
        if (p.grad.data() != nullptr) std::fill_n(p.grad.data(), p.grad.size(), T{});
    };
    model.visit(clear);
}

// The published initialisation (spec 3, 5); the draws follow from seed, and the order of the parameters.
template <class Model, class Backend> void initialise(context<Backend> const& ctx, Model& model) {
    std::uint64_t first = 0;
    auto draw = [&]<class T, class E>(std::string const&, param<T, E, Backend>& p) {
        if (p.starts == role::weight) {
            fill_normal(ctx, p.value, key{ctx.seed, stream::initialise, 0}, first);
            p.value = p.value * 0.02;
            first += static_cast<std::uint64_t>((p.value.size() + 3) / 4 * 4);
        } else {
            fill(ctx, p.value, p.starts == role::gain ? T{1} : T{});
        }
    };
    model.visit(draw);
}

template <class Model> index_t count_parameters(Model& model) {
    index_t n = 0;
    auto add = [&](std::string const&, auto& p) { n += p.value.size(); };
    model.visit(add);
    return n;
}

}  // namespace calm
