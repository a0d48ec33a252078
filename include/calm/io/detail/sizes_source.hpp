#pragma once
// C++ source text of configurations. It contains sizes, type names of heads and nothing that a file states otherwise.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "calm/base/detail/number_text.hpp"
#include "calm/model/config.hpp"
#include "calm/model/heads.hpp"

namespace calm {

// The configuration of a CALM or of an autoregressive model.
using any_sizes = std::variant<configuration<any_head>, autoregressive_configuration>;

namespace detail {

inline std::string member_text(std::string_view name, std::string const& value) {
    return "." + std::string(name) + " = " + value;
}
inline std::string member_text(std::string_view name, index_t value) {
    return member_text(name, std::to_string(value));
}
inline std::string member_text(std::string_view name, double value) {
    return member_text(name, shortest(value));
}

inline std::string joined_members(std::vector<std::string> const& members, std::string_view between) {
    std::string text;
    for (auto const& one : members) (text += text.empty() ? "" : between) += one;
    return text;
}

// Designated initialisers of sizes, in the order of declaration that C++ requires.
template <class Sizes> std::vector<std::string> members_of(Sizes const& sizes) {
    std::map<index_t const*, std::string> by_place;
    Sizes::visit_fields(sizes, [&](number_field const& field, index_t const& size) {
        by_place.emplace(&size, member_text(field.key, size));
    });
    std::vector<std::string> all;
    for (auto& [place, text] : by_place) all.push_back(std::move(text));
    return all;
}

inline std::string scaling_value(rotary_scaling const& scaling) {
    std::vector<std::string> all{member_text("type", "calm::rope_type::" + std::string(name_of(scaling.type)))};
    rotary_scaling::visit_fields(scaling,
                                 [&](std::string_view name, auto value) { all.push_back(member_text(name, value)); });
    return "{" + joined_members(all, ", ") + "}";
}

// Includes what is not a size only if it is not the default.
inline std::string llama_members(llama_sizes const& c, std::string const& between) {
    llama_sizes const usual;
    auto all = members_of(c);
    if (c.head_dim != usual.head_dim) all.push_back(member_text("head_dim", c.head_dim));
    if (c.rope_theta != usual.rope_theta) all.push_back(member_text("rope_theta", c.rope_theta));
    if (c.rope_scaling != usual.rope_scaling) all.push_back(member_text("rope_scaling", scaling_value(c.rope_scaling)));
    if (c.rms_norm_eps != usual.rms_norm_eps) all.push_back(member_text("rms_norm_eps", c.rms_norm_eps));
    return joined_members(all, between);
}

}  // namespace detail

// The C++ type of a head; "" for the default head.
inline std::string head_type_of(any_head const& head) {
    return head.facts == nullptr || head.name() == default_head::name ? "" : std::string(head.facts->type);
}

// Declares the constant `sizes`.
inline std::string declaration_of(configuration<any_head> const& c) {
    std::string const inner = ",\n                    ", outer = ",\n    ";
    std::string text = "constexpr calm::configuration<" + head_type_of(c.head) + "> sizes{\n    .autoencoder = {" +
                       detail::member_text("vocab_size", c.autoencoder.vocab_size) + inner +
                       detail::joined_members(detail::members_of(c.autoencoder), inner) + "}" + outer +
                       detail::llama_members(llama_sizes_of(c), outer);
    std::vector<std::string> head;
    for (auto const& size : c.head.sizes) head.push_back("." + std::string(size.field.key) + " = " + text_of(size));
    if (!head.empty()) text += outer + ".head = {" + detail::joined_members(head, ", ") + "}";
    if (c.input != input_kind::tokens)
        text += outer + ".input = calm::input_kind::" + (c.input == input_kind::latents ? "latents" : "both");
    return text + "};\n";
}

// Declares the constant `sizes`.
inline std::string declaration_of(autoregressive_configuration const& c) {
    std::string const tied = c.tie_word_embeddings ? ",\n    .tie_word_embeddings = true" : "";
    return "constexpr calm::autoregressive_configuration sizes{\n    .llama = {" +
           detail::llama_members(c.llama, ",\n              ") + "}" + tied + ",\n    " +
           detail::member_text("vocab_size", c.vocab_size) + "};\n";
}

// Declares the constant `sizes`.
inline std::string declaration_of(any_sizes const& sizes) {
    return std::visit([](auto const& c) { return declaration_of(c); }, sizes);
}

// The sizes without their vocabulary, so that one compiled model serves all vocabularies.
inline any_sizes without_vocabulary(any_sizes sizes) {
    if (auto* const calm = std::get_if<0>(&sizes))
        calm->autoencoder.vocab_size = autoencoder_configuration{}.vocab_size;
    else
        std::get<1>(sizes).vocab_size = autoregressive_configuration{}.vocab_size;
    return sizes;
}

}  // namespace calm
