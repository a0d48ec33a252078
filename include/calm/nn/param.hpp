#pragma once
/// \file
/// Parameters: a value, its gradient and its initialiser. Models are aggregates of layers. `visit` names every
/// parameter once, and counting, initialisation, loading, saving, clipping, the optimizer and gradient checks all use
/// it.
/// \shows{examples/06_network.cpp,main}

#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "calm/tensor/core/space.hpp"
#include "calm/tensor/detail/ops/bf16_copies.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

/// How a parameter is initialised.
enum class role {
    weight,  ///< normal(0, 0.02)
    bias,    ///< 0
    gain,    ///< 1
    output,  ///< a weight initialised to 0
    xavier,  ///< a weight (out, in), uniform in [-b, b], b = sqrt(6 / (in + out)); Glorot and Bengio 2010
};

/// A trained tensor of a layer. It does not own its memory: `allocate`, a loaded file or the caller's tensor does.
template <class Extents, class Space = space<>> struct param {
    using space_type = Space;
    static constexpr std::size_t rank = Extents::rank;  ///< number of dimensions
    /// Matrices use the space's weight type; biases and gains use its scalar type.
    using value_type = std::conditional_t<(rank > 1), typename Space::weights, typename Space::scalar>;

    view<value_type, Extents, typename Space::backend> value{nullptr, Extents()};  ///< null until memory is assigned
    /// Accumulated gradient; null for inference.
    view<typename Space::scalar, Extents, typename Space::backend> grad{nullptr, Extents()};
    role starts = role::weight;  ///< for `initialise`
    int received_gradients = 0;  ///< calls of gradient() since the last update

    /// The gradient that backward adds to. The call counts as one contribution, so backward must add to it before the
    /// next layer's backward begins.
    auto gradient() {
        ++received_gradients;
        return grad;
    }
    /// A read-only view of the value.
    [[nodiscard]] view<value_type const, Extents, typename Space::backend> read() const { return value; }
    /// Whether weight decay applies: to matrices, not to biases and norms (docs/mathematics/optimizers.md).
    static constexpr bool decays = rank > 1;
    /// Whether this is a matrix between hidden states: both sizes are static, so neither is the vocabulary.
    static constexpr bool is_hidden = rank == 2 && Extents::rank_dynamic == 0;
};

/// A parameter of the given shape, without memory; used in member initialisers of layers.
template <class Extents, class Space = space<>>
param<Extents, Space> make_param(role starts, Extents const& shape = Extents()) {
    return {{nullptr, shape}, {nullptr, shape}, starts, 0};
}

/// Calls visitor("prefix.name", p) where a layer calls visitor("name", p). The type does not depend on the nesting
/// depth, so a layer's visit is compiled once per visitor. It is optimised for size because visits are rare.
template <class Visitor> struct prefixed {
    std::string prefix;  ///< ends in a dot
    Visitor& visitor;    ///< the outermost one
    /// A layer's visit calls this for its parameter `name`.
    template <class Param> [[gnu::cold]] void operator()(std::string const& name, Param& p) {
        visitor(prefix + name, p);
    }
};
/// Visits a member layer, whose parameter names get the prefix "name.".
template <class Layer, class Visitor>
[[gnu::cold]] void visit_as(std::string const& name, Layer& layer, Visitor& visitor) {
    prefixed<Visitor> inner{name + ".", visitor};
    layer.visit(inner);
}
/// Inside such a visit: concatenates the prefixes.
template <class Layer, class Visitor>
[[gnu::cold]] void visit_as(std::string const& name, Layer& layer, prefixed<Visitor>& outer) {
    prefixed<Visitor> inner{outer.prefix + name + ".", outer.visitor};
    layer.visit(inner);
}

/// A parameter with its static shape erased. A single visitor collects these, so that a model's visit is compiled for
/// that visitor only and not for every algorithm on parameters.
template <class Space = space<>> struct any_parameter {
    using value_type = typename Space::scalar;  ///< of gradients, biases and gains
    using backend = typename Space::backend;
    template <class T> using flat = view<T, extents<dyn>, backend>;  ///< its elements as a vector
    /// Flat values; if matrices have another type, a variant of both types, for with_values.
    using values = std::conditional_t<is_trainable<Space>, flat<value_type>,
                                      std::variant<flat<value_type>, flat<typename Space::weights>>>;
    std::string name;                                          ///< as `visit` gives it
    std::vector<index_t> shape;                                ///< of the parameter
    values value;                                              ///< of the parameter
    flat<value_type> grad;                                     ///< flat; null if the parameter has no gradient
    role starts;                                               ///< initialiser
    bool decays;                                               ///< whether weight decay acts on it
    bool is_hidden;                                            ///< whether it is a matrix between hidden states
    int* received_gradients;                                   ///< the parameter's own counter
    void* owner;                                               ///< the parameter itself, for bind
    void (*bind)(void* owner, void* value, value_type* grad);  ///< assigns the parameter's memory

    /// The number of elements.
    [[nodiscard]] index_t size() const { return grad.size(); }
};

/// f(values) with a flat view of the parameter's values, in their stored type.
template <class Space, class F> void with_values(any_parameter<Space> const& p, F const& f) {
    if constexpr (is_trainable<Space>)
        f(p.value);
    else
        std::visit(f, p.value);
}

namespace detail {
template <class Model> struct space_of_model { using type = space<>; };
template <class Model>
requires requires {
    typename Model::space_type;
}
struct space_of_model<Model> {
    using type = typename Model::space_type;
};
}  // namespace detail

/// The space of a model: its space_type, or float on the CPU if it has none.
template <class Model> using space_of = typename detail::space_of_model<std::remove_const_t<Model>>::type;

namespace detail {

// The visitor that collects parameters. One type serves all models of a space, so shared layers compile their visit
// once.
template <class Space> struct parameter_list {
    using value_type = typename any_parameter<Space>::value_type;
    std::vector<any_parameter<Space>> all;

    template <class E, class Other> [[gnu::cold]] void operator()(std::string const& name, param<E, Other>& p) {
        static_assert(std::is_same_v<Space, Other>,
                      "calm::parameters_of: a model that is not float on the cpu must define `space_type`");
        index_t sizes[E::rank];
        for (std::size_t r = 0; r < E::rank; ++r) sizes[r] = p.value.extent(r);
        add(name, sizes, p.value.data(), p.grad.data(), p.starts, param<E, Space>::decays, param<E, Space>::is_hidden,
            &p.received_gradients, &p, [](void* owner, void* value, value_type* grad) {
                using own = param<E, Space>;
                auto& self = *static_cast<own*>(owner);
                self.value = {static_cast<typename own::value_type*>(value), self.value.extents()};
                self.grad = {grad, self.grad.extents()};
            });
    }

private:
    template <class T>
    [[gnu::noinline]] void add(std::string const& name, std::span<index_t const> sizes, T* value, value_type* grad,
                               role starts, bool decays, bool is_hidden, int* received, void* owner,
                               void (*bind)(void*, void*, value_type*)) {
        auto const bytes = bytes_of_sizes(sizes, sizeof(T));
        require(bytes.has_value(), errc::memory, "expected a size of ", name,
                " that memory can hold, found a larger one; is the vocabulary right?");
        extents<dyn> const all_of_them(static_cast<index_t>(*bytes / sizeof(T)));
        all.push_back({name,
                       {sizes.begin(), sizes.end()},
                       typename any_parameter<Space>::template flat<T>{value, all_of_them},
                       {grad, all_of_them},
                       starts,
                       decays,
                       is_hidden,
                       received,
                       owner,
                       bind});
    }
};

}  // namespace detail

/// All parameters of a model, in the order of visit.
template <class Model> std::vector<any_parameter<space_of<Model>>> parameters_of(Model& model) {
    detail::parameter_list<space_of<Model>> list;
    model.visit(list);
    return std::move(list.all);
}

/// All parameters of the frozen autoencoder that a language model holds.
template <class Model> std::vector<any_parameter<space_of<Model>>> frozen_parameters_of(Model& model) {
    detail::parameter_list<space_of<Model>> list;
    model.visit_autoencoder(list);
    return std::move(list.all);
}

/// Assigns zeroed memory to every parameter's value and, unless gradients is null, to its gradient. The arenas own the
/// memory and must outlive the model. Throws errc::memory.
template <class Model, class Backend> void allocate(Model& model, arena<Backend>& values, arena<Backend>* gradients) {
    static_assert(std::is_same_v<Backend, typename space_of<Model>::backend>,
                  "calm::allocate: the model and the memory have different backends");
    for (auto const& p : parameters_of(model)) {
        auto const zeros = [&]<class T>(arena<Backend>& memory, T*) {
            auto const taken = memory.template take<T>(p.grad.extents());
            auto const bytes = static_cast<std::size_t>(taken.size()) * sizeof(T);
            if constexpr (host_memory<Backend>)
                detail::memory_of<Backend>::clear_untouched(taken.data(), bytes);
            else
                detail::memory_of<Backend>::clear(taken.data(), bytes);
            return taken.data();
        };
        with_values(p, [&](auto const& value) {
            auto* const own = zeros(values, value.data());
            p.bind(p.owner, own, gradients != nullptr ? zeros(*gradients, p.grad.data()) : nullptr);
        });
    }
}

namespace detail {
// The bound of role::xavier for a matrix (out, in).
inline double xavier_bound(std::span<index_t const> shape) {
    require(shape.size() == 2, errc::usage, "calm::initialise: expected a matrix for role::xavier, found ",
            shape.size(), " dimensions");
    return std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
}
}  // namespace detail

/// Initialises every parameter according to its role, as the published code does. The random values depend on ctx.seed
/// and on the order of the parameters.
template <class Model, class Backend> void initialise(context<Backend> const& ctx, Model& model) {
    static_assert(is_trainable<space_of<Model>>, "calm::initialise: expected a trainable model, found one with bf16 "
                                                 "weights; initialise a float model and copy its parameters");
    std::uint64_t first = 0;
    using T = typename space_of<Model>::scalar;
    for (auto const& p : parameters_of(model)) {
        if (p.starts == role::weight || p.starts == role::xavier) {
            key const draws{ctx.seed, stream::initialise, 0};
            if (p.starts == role::weight) {
                fill_normal(ctx, p.value, draws, first);
                evaluate(ctx, p.value, p.value * 0.02);
            } else {
                fill_uniform(ctx, p.value, draws, first, static_cast<T>(-0.5));
                evaluate(ctx, p.value, p.value * (2 * detail::xavier_bound(p.shape)));
            }
            first += static_cast<std::uint64_t>((p.value.size() + 3) / 4 * 4);
        } else {
            fill(ctx, p.value, p.starts == role::gain ? T{1} : T{});
        }
    }
}

/// Copies values between two parameter lists of equal names and shapes, on the host or on a device. Both come from
/// parameters_of or both from frozen_parameters_of. Values are rounded to nearest even if `to` stores bf16 weights.
/// Throws errc::usage if the lists differ.
template <class To, class From>
requires(std::is_same_v<typename To::scalar, typename From::scalar>) void copy_parameters(
    auto const& ctx, std::vector<any_parameter<To>> const& to, std::vector<any_parameter<From>> const& from) {
    require(to.size() == from.size(), errc::usage, "calm::copy_parameters: expected equal numbers of parameters, ",
            "found ", to.size(), " and ", from.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
        require(to[i].name == from[i].name && to[i].shape == from[i].shape, errc::usage,
                "calm::copy_parameters: expected the parameters of one configuration, found ", to[i].name, " and ",
                from[i].name);
        with_values(
            to[i], [&](auto const& there) { with_values(from[i], [&](auto const& here) { copy(ctx, there, here); }); });
    }
}

/// Registers the fp32 matrices among the parameters, so that bf16 products can keep rounded copies of them.
template <class Space>
void add_matrices(bf16_copies<typename Space::backend>& copies, std::vector<any_parameter<Space>> const& parameters) {
    if constexpr (std::is_same_v<typename Space::weights, float>)
        for (auto const& p : parameters)
            if (p.shape.size() == 2) copies.add(p.value.data(), p.shape[0], p.shape[1]);
}

/// The number of elements of all parameters. Works before allocation.
template <class Model> index_t count_parameters(Model& model) {
    index_t n = 0;
    for (auto const& p : parameters_of(model)) n += p.size();
    return n;
}

}  // namespace calm
