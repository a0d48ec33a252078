#pragma once
/// \file
/// Interface of a generative head: an aggregate of its sizes that names its network, its objective and its fields.
/// Files, run records, command lines and tables enumerate these fields, so each head is a single header. `any_head` is
/// a type-erased head for files and programs.
/// \shows{examples/07_head.cpp,guess}

#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/base/error.hpp"
#include "calm/tensor/core/extents.hpp"

namespace calm {

/// Describes one numeric field of a head, an objective, an autoencoder or a Llama stack, as files and programs name it.
struct number_field {
    std::string_view key;       ///< in config.json
    std::string_view what;      ///< description for users
    double least;               ///< minimum
    double most;                ///< maximum
    bool without_ends = false;  ///< whether both ends of the range are excluded
    bool required = false;      ///< whether config.json must contain it
    bool published = true;      ///< a top-level key of config.json; otherwise inside its "calm" object
    std::string_view option{};  ///< command-line option after --head-; empty for sizes

    friend constexpr bool operator==(number_field const&, number_field const&) = default;
};

/// FLOPs of a head's products in a forward pass, per position; a multiply-add counts as 2 (flops::product). A training
/// step counts 3 (shared + scored + N trained), for forward and backward. Programs report them, and `sweep --teraflops`
/// derives the length of a run from them; they change no other result.
struct head_flops {
    double shared;      ///< depends on the hidden state only
    double trained;     ///< per sample in training: a third of forward plus backward
    double drawn;       ///< per sample in generation
    double scored = 0;  ///< additional cost of the loss per position
};

/// Dimensions around a head that its FLOPs depend on.
struct head_dimensions {
    index_t D;                    ///< width of the hidden states
    index_t L;                    ///< width of the latents
    index_t K = 1;                ///< tokens per patch
    index_t V = 0;                ///< vocabulary size
    index_t table_width = 0;      ///< width of the autoencoder's embedding table
    double encoding = 0;          ///< FLOPs of the autoencoder's posterior for a single patch
    double encoding_at_once = 0;  ///< per patch, when many are encoded together
};

namespace detail {
// A visitor for use in the concepts.
struct some_visitor {
    void operator()(number_field const&, index_t const&) const;
    void operator()(number_field const&, double const&) const;
};
}  // namespace detail

/// The settings of a head's loss: an aggregate with `samples`, the number N of samples per position, whose option is
/// "samples". visit_fields(self, visitor) calls visitor(number_field, member) for every member, of type index_t or
/// double.
template <class Objective>
concept head_objective = std::default_initializable<Objective> &&
    requires(Objective const& o, detail::some_visitor const& visitor) {
    { o.samples } -> std::convertible_to<index_t>;
    Objective::visit_fields(o, visitor);
};

/// A head: an aggregate of sizes with visit_fields as an objective has it, and these members:
/// - `name`: on command lines, and as model_type in files
/// - `architecture`: the first entry of `architectures` in files
/// - `type`: its C++ type, "calm::energy"; defaults to its name
/// - `objective`: the settings of its loss
/// - `network<C, Space>`: its layers, a head_network (model/head_network.hpp)
/// - `flops(dimensions)`: FLOPs of its products
/// - `tensors(dimensions, to)`: optional; adds the names and shapes of its parameters to tensor_shapes. Without it,
///   files are checked only when the network is loaded
template <class Head>
concept generative_head = std::default_initializable<Head> && std::equality_comparable<Head> &&
    head_objective<typename Head::objective> && requires(Head const& head, detail::some_visitor const& visitor) {
    { Head::name } -> std::convertible_to<std::string_view>;
    { Head::architecture } -> std::convertible_to<std::string_view>;
    { head.flops(head_dimensions{}) } -> std::same_as<head_flops>;
    Head::visit_fields(head, visitor);
};

/// A head that samples in several steps. Its `sampling` is an aggregate of step settings with visit_fields, and its
/// network has a member `sampling` of that type.
template <class Head>
concept stepwise_head = generative_head<Head> && std::default_initializable<typename Head::sampling> &&
    requires(typename Head::sampling const& sampling, detail::some_visitor const& visitor) {
    Head::sampling::visit_fields(sampling, visitor);
};

/// A field with its value; integers are exact.
struct field_value {
    number_field field;  ///< description
    double value = 0;    ///< its number
    bool whole = true;   ///< whether the member is an integer

    /// Whether the value is within the field's range.
    [[nodiscard]] constexpr bool is_allowed() const {
        return field.without_ends ? field.least < value && value < field.most
                                  : field.least <= value && value <= field.most;
    }
    friend constexpr bool operator==(field_value const&, field_value const&) = default;
};

/// Enough digits to recover the value exactly.
inline std::string text_of(field_value const& one) {
    return one.whole ? std::to_string(static_cast<index_t>(one.value)) : shortest(one.value);
}

/// The values of a head or an objective, in field order.
class field_values : public std::vector<field_value> {
public:
    field_values() = default;
    /// Reads an aggregate that has visit_fields.
    template <class Aggregate> static field_values of(Aggregate const& aggregate) {
        field_values all;
        Aggregate::visit_fields(aggregate, [&](number_field const& field, auto const& member) {
            all.push_back({field, static_cast<double>(member), std::integral<std::decay_t<decltype(member)>>});
        });
        return all;
    }

    /// Finds a field by key; null if there is none.
    [[nodiscard]] field_value const* find(std::string_view key) const {
        auto const found = std::find_if(begin(), end(), [&](auto const& one) { return one.field.key == key; });
        return found == end() ? nullptr : &*found;
    }
    /// Finds a field by key, for modification.
    [[nodiscard]] field_value* find(std::string_view key) {
        return const_cast<field_value*>(std::as_const(*this).find(key));
    }
    /// Finds a field by option; null if there is none.
    [[nodiscard]] field_value const* find_option(std::string_view option) const {
        auto const found = std::find_if(begin(), end(), [&](auto const& one) { return one.field.option == option; });
        return found == end() ? nullptr : &*found;
    }
    /// Finds a field by option, for modification.
    [[nodiscard]] field_value* find_option(std::string_view option) {
        return const_cast<field_value*>(std::as_const(*this).find_option(option));
    }

    /// The aggregate with these values; missing fields keep their defaults.
    template <class Aggregate> [[nodiscard]] Aggregate as() const {
        Aggregate aggregate;
        Aggregate::visit_fields(aggregate, [&](number_field const& field, auto& member) {
            if (auto const* const one = find(field.key))
                member = static_cast<std::decay_t<decltype(member)>>(one->value);
        });
        return aggregate;
    }
};

class tensor_shapes;  ///< model/detail/tensor_shapes.hpp

/// Run-time description of a head type.
struct head_traits {
    std::string_view name;          ///< Head::name
    std::string_view architecture;  ///< Head::architecture
    std::string_view type;          ///< C++ type name
    field_values sizes;             ///< with their defaults
    field_values objective;         ///< with their defaults
    field_values sampling;          ///< with their defaults; empty unless it is a stepwise_head
    /// FLOPs of a head with these sizes.
    head_flops (*flops)(field_values const& sizes, head_dimensions const& at);
    /// Adds the tensors of a head with these sizes; null if the head does not list them.
    void (*tensors)(field_values const& sizes, head_dimensions const& at, tensor_shapes& to);
};

namespace detail {
template <class Head> constexpr std::string_view type_name_of() {
    if constexpr (requires { Head::type; })
        return Head::type;
    else
        return Head::name;
}
template <class Head> field_values sampling_of() {
    if constexpr (stepwise_head<Head>)
        return field_values::of(typename Head::sampling{});
    else
        return {};
}
template <class Head> inline constexpr bool lists_tensors = requires(Head const& head, tensor_shapes& to) {
    head.tensors(head_dimensions{}, to);
};
template <class Head> constexpr auto tensors_of() -> decltype(head_traits::tensors) {
    if constexpr (lists_tensors<Head>)
        return [](field_values const& sizes, head_dimensions const& at, tensor_shapes& to) {
            sizes.as<Head>().tensors(at, to);
        };
    else
        return nullptr;
}
}  // namespace detail

/// The description of a head type; one object per type.
template <generative_head Head> head_traits const& head_traits_of() {
    static head_traits const facts{
        Head::name,
        Head::architecture,
        detail::type_name_of<Head>(),
        field_values::of(Head{}),
        field_values::of(typename Head::objective{}),
        detail::sampling_of<Head>(),
        [](field_values const& sizes, head_dimensions const& at) { return sizes.as<Head>().flops(at); },
        detail::tensors_of<Head>()};
    return facts;
}

/// A type-erased head: its sizes and the description of its type. Without facts there is no head.
struct any_head {
    head_traits const* facts = nullptr;  ///< of its type
    field_values sizes;                  ///< its members

    any_head() = default;
    /// With default sizes.
    explicit any_head(head_traits const& of) : facts(&of), sizes(of.sizes) {}
    /// Erases the type of a head.
    template <generative_head Head>
    explicit any_head(Head const& head) : facts(&head_traits_of<Head>()), sizes(field_values::of(head)) {}

    /// The name; "" if there is no head.
    [[nodiscard]] constexpr std::string_view name() const { return facts == nullptr ? "" : facts->name; }
    /// FLOPs of its products; 0 if there is no head.
    [[nodiscard]] head_flops flops(head_dimensions const& at) const {
        return facts == nullptr ? head_flops{0, 0, 0} : facts->flops(sizes, at);
    }
    /// Equal if the heads have the same type and sizes.
    friend constexpr bool operator==(any_head const& a, any_head const& b) {
        return a.name() == b.name() && a.sizes == b.sizes;
    }
};

/// A type-erased objective.
struct any_objective {
    field_values fields;  ///< its members

    any_objective() = default;
    /// With these values.
    explicit any_objective(field_values given) : fields(std::move(given)) {}
    /// Erases the type of an objective.
    template <head_objective Objective> any_objective(Objective const& o) : fields(field_values::of(o)) {}
    /// Converts to a typed objective; fields it lacks keep their defaults.
    template <head_objective Objective> explicit operator Objective() const { return fields.as<Objective>(); }

    /// N, model samples per position.
    [[nodiscard]] index_t samples() const {
        auto const* const found = fields.find_option("samples");
        return found == nullptr ? 1 : static_cast<index_t>(found->value);
    }
};

}  // namespace calm
