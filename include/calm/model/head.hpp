#pragma once
// What a generative head is: an aggregate of its sizes that names its network, its objective and its numbers. All else
// that depends on the head - files, records of runs, command lines, tables - walks those names, so that a head is one
// header. `any_head` is a head whose type is not known: what files and programs hold.

#include <algorithm>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/base/error.hpp"
#include "calm/base/number_text.hpp"
#include "calm/tensor/extents.hpp"

namespace calm {

// One number of a head, of its objective, of the autoencoder or of the stack, as files and programs name it.
struct number_field {
    std::string_view key;       // in config.json
    std::string_view what;      // for people
    double least;               // what it may be
    double most;                // what it may be
    bool without_ends = false;  // neither of the two is allowed itself
    bool required = false;      // a config.json has to have it
    bool published = true;      // a key of config.json; else of our object in it
    std::string_view option{};  // of programs, behind --head-; sizes have none

    friend constexpr bool operator==(number_field const&, number_field const&) = default;
};

// Floating-point operations of a head's products, forward, as `flops` counts them. In training a position takes the
// shared and the scored part once and a sample's part N times.
struct head_flops {
    double shared;      // what depends on the hidden state alone
    double trained;     // one sample in training: a third of forward and backward together
    double drawn;       // one sample in generation
    double scored = 0;  // what the loss takes of a position besides
};

// What a head stands between, as far as its operations depend on it.
struct head_surroundings {
    index_t D;                    // numbers of a hidden state
    index_t L;                    // of a latent
    index_t K = 1;                // tokens a patch
    index_t V = 0;                // ids of the vocabulary
    index_t table_width = 0;      // numbers of a row of the autoencoder's table
    double encoding = 0;          // operations of the autoencoder's posterior of a patch alone
    double encoding_at_once = 0;  // of one among many
};

namespace detail {
// Stands for any visitor in the concept.
struct some_visitor {
    void operator()(number_field const&, index_t const&) const;
    void operator()(number_field const&, double const&) const;
};
}  // namespace detail

// The settings of a head's loss: an aggregate with `samples`, N of a position, whose option is "samples".
// visit_fields(self, visitor) names all numbers as visitor(number_field, member), members being index_t or double.
template <class Objective>
concept head_objective = std::default_initializable<Objective> &&
    requires(Objective const& o, detail::some_visitor const& visitor) {
    { o.samples } -> std::convertible_to<index_t>;
    Objective::visit_fields(o, visitor);
};

// A head: an aggregate of sizes with visit_fields as an objective has it, and
//   name                        on command lines, and as model_type in files
//   architecture                the first of `architectures` in files
//   type                        what C++ calls it, "calm::energy"; if left out, its name
//   objective                   the settings of its loss
//   layer<C, Space>             its network, a head_network (model/head_network.hpp)
//   flops(surroundings)         of its products
//   tensors(surroundings, to)   adds the names and shapes of its network's parameters to tensor_shapes; may be left
//   out,
//                               then files are checked where the network is loaded alone
template <class Head>
concept generative_head = std::default_initializable<Head> && std::equality_comparable<Head> &&
    head_objective<typename Head::objective> && requires(Head const& head, detail::some_visitor const& visitor) {
    { Head::name } -> std::convertible_to<std::string_view>;
    { Head::architecture } -> std::convertible_to<std::string_view>;
    { head.flops(head_surroundings{}) } -> std::same_as<head_flops>;
    Head::visit_fields(head, visitor);
};

// A head that takes several steps to a sample: its `sampling` is an aggregate of their numbers, with visit_fields as an
// objective has it; its network has a member `sampling` of it.
template <class Head>
concept stepwise_head = generative_head<Head> && std::default_initializable<typename Head::sampling> &&
    requires(typename Head::sampling const& sampling, detail::some_visitor const& visitor) {
    Head::sampling::visit_fields(sampling, visitor);
};

// A head that drafts tokens: its network is made for a vocabulary, and its verbs read the frozen autoencoder, the loss
// the tokens of the next patches too (heads/drafted.hpp).
template <class Head>
concept drafting_head = generative_head<Head> && requires {
    requires Head::drafts;
};

// A field and its number; whole numbers are exact.
struct field_value {
    number_field field;  // what it is
    double value = 0;    // its number
    bool whole = true;   // whether the member is an integer

    // Whether the field allows the number.
    [[nodiscard]] constexpr bool is_allowed() const {
        return field.without_ends ? field.least < value && value < field.most
                                  : field.least <= value && value <= field.most;
    }
    friend constexpr bool operator==(field_value const&, field_value const&) = default;
};

// As many digits as give the number back.
inline std::string text_of(field_value const& one) {
    return one.whole ? std::to_string(static_cast<index_t>(one.value)) : shortest(one.value);
}

// The numbers of a head or of an objective, in their order.
class field_values : public std::vector<field_value> {
public:
    field_values() = default;
    // Those of an aggregate with visit_fields.
    template <class Aggregate> static field_values of(Aggregate const& aggregate) {
        field_values all;
        Aggregate::visit_fields(aggregate, [&](number_field const& field, auto const& member) {
            all.push_back({field, static_cast<double>(member), std::integral<std::decay_t<decltype(member)>>});
        });
        return all;
    }

    // Of a key, or nullptr.
    [[nodiscard]] field_value const* find(std::string_view key) const {
        auto const found = std::find_if(begin(), end(), [&](auto const& one) { return one.field.key == key; });
        return found == end() ? nullptr : &*found;
    }
    // The same, to be changed.
    [[nodiscard]] field_value* find(std::string_view key) {
        return const_cast<field_value*>(std::as_const(*this).find(key));
    }
    // Of an option, or nullptr.
    [[nodiscard]] field_value const* find_option(std::string_view option) const {
        auto const found = std::find_if(begin(), end(), [&](auto const& one) { return one.field.option == option; });
        return found == end() ? nullptr : &*found;
    }
    // The same, to be changed.
    [[nodiscard]] field_value* find_option(std::string_view option) {
        return const_cast<field_value*>(std::as_const(*this).find_option(option));
    }

    // The aggregate with these numbers; what is not among them stays as it is by default.
    template <class Aggregate> [[nodiscard]] Aggregate as() const {
        Aggregate aggregate;
        Aggregate::visit_fields(aggregate, [&](number_field const& field, auto& member) {
            if (auto const* const one = find(field.key))
                member = static_cast<std::decay_t<decltype(member)>>(one->value);
        });
        return aggregate;
    }
};

class tensor_shapes;  // model/tensor_shapes.hpp

// What is known of a head's type at run time.
struct head_facts {
    std::string_view name;          // as the type names itself
    std::string_view architecture;  // as the type names itself
    std::string_view type;          // what C++ calls it
    field_values sizes;             // with their defaults
    field_values objective;         // with their defaults
    field_values sampling;          // with their defaults; empty where a sample takes no steps
    // Of a head of those sizes.
    head_flops (*flops)(field_values const& sizes, head_surroundings const& at);
    // Adds the tensors of a head of those sizes; nullptr where the head does not list them.
    void (*tensors)(field_values const& sizes, head_surroundings const& at, tensor_shapes& to);
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
    head.tensors(head_surroundings{}, to);
};
template <class Head> constexpr auto tensors_of() -> decltype(head_facts::tensors) {
    if constexpr (lists_tensors<Head>)
        return [](field_values const& sizes, head_surroundings const& at, tensor_shapes& to) {
            sizes.as<Head>().tensors(at, to);
        };
    else
        return nullptr;
}
}  // namespace detail

// Those of a head; one object a head.
template <generative_head Head> head_facts const& head_facts_of() {
    static head_facts const facts{
        Head::name,
        Head::architecture,
        detail::type_name_of<Head>(),
        field_values::of(Head{}),
        field_values::of(typename Head::objective{}),
        detail::sampling_of<Head>(),
        [](field_values const& sizes, head_surroundings const& at) { return sizes.as<Head>().flops(at); },
        detail::tensors_of<Head>()};
    return facts;
}

// The sizes of a head whose type is known at run time only; without facts there is no head.
struct any_head {
    head_facts const* facts = nullptr;  // of its type
    field_values sizes;                 // its members

    any_head() = default;
    // With the sizes it has by default.
    explicit any_head(head_facts const& of) : facts(&of), sizes(of.sizes) {}
    // The head itself, its type forgotten.
    template <generative_head Head>
    explicit any_head(Head const& head) : facts(&head_facts_of<Head>()), sizes(field_values::of(head)) {}

    // "" where there is none.
    [[nodiscard]] constexpr std::string_view name() const { return facts == nullptr ? "" : facts->name; }
    // Of its products; 0 where there is none.
    [[nodiscard]] head_flops flops(head_surroundings const& at) const {
        return facts == nullptr ? head_flops{0, 0, 0} : facts->flops(sizes, at);
    }
    // Heads of one type and of equal sizes are equal.
    friend constexpr bool operator==(any_head const& a, any_head const& b) {
        return a.name() == b.name() && a.sizes == b.sizes;
    }
};

// The same of an objective.
struct any_objective {
    field_values fields;  // its members

    any_objective() = default;
    // Of these numbers.
    explicit any_objective(field_values given) : fields(std::move(given)) {}
    // The objective itself, its type forgotten.
    template <head_objective Objective> any_objective(Objective const& o) : fields(field_values::of(o)) {}
    // What it has of an objective; the rest is as its type has it.
    template <head_objective Objective> explicit operator Objective() const { return fields.as<Objective>(); }

    // N, model samples a position.
    [[nodiscard]] index_t samples() const {
        auto const* const found = fields.find_option("samples");
        return found == nullptr ? 1 : static_cast<index_t>(found->value);
    }
};

}  // namespace calm
