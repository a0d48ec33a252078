#pragma once
// Parameters to and from model.safetensors, under the names that visit() gives them (spec 12).

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/io/safetensors.hpp"
#include "calm/io/stored_tensor.hpp"
#include "calm/nn/param.hpp"

namespace calm {

// A second name of a tensor that some files hold twice. A name that ends in '.' stands for all that begin with it.
struct tied_name {
    std::string_view name;
    std::string_view same_as;
};
inline constexpr std::array<tied_name, 1> tied_names_of_autoencoder{
    {{"decoder.lm_head_weight", "encoder.embed_tokens.weight"}}};
inline constexpr std::array<tied_name, 2> tied_names_of_calm{
    {{"ae_model.decoder.lm_head_weight", "ae_model.encoder.embed_tokens.weight"},
     {"generative_head.", "mlp_generator."}}};

// What a model's visit() names, as a callable that takes a visitor (name, param): the form in which save_weights and
// load_weights take parameters. The model is not copied.
template <class Model> auto named_parameters(Model& model) {
    return [&model](auto& visitor) { model.visit(visitor); };
}
// The same of the autoencoder that a language model holds frozen.
template <class Model> auto named_frozen_parameters(Model& model) {
    return [&model](auto& visitor) { model.visit_autoencoder(visitor); };
}

namespace detail {

template <class Extents> std::vector<index_t> sizes_of(Extents const& shape) {
    std::vector<index_t> sizes;
    for (std::size_t r = 0; r < Extents::rank; ++r) sizes.push_back(shape[r]);
    return sizes;
}

inline bool is_float(stored_type type) {
    return type == stored_type::f16 || type == stored_type::bf16 || type == stored_type::f32 ||
           type == stored_type::f64;
}

// "'a', 'b' and 3 more"
inline std::string some_of(std::vector<std::string> const& names) {
    constexpr std::size_t most = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + in_quotes(names[i]);
    if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
    return text;
}

// A tensor that no parameter claims: fine where it repeats one that is read.
inline bool repeats_another(safetensors_file const& file, stored_tensor const& tensor,
                            std::span<tied_name const> ties) {
    for (auto const& [name, same_as] : ties) {
        bool const many = name.ends_with('.');
        if (many ? !tensor.name.starts_with(name) : tensor.name != name) continue;
        auto const original = std::string(same_as) + tensor.name.substr(name.size());
        auto const* const same = file.find(original);
        if (same == nullptr) return false;
        if (same->type != tensor.type || same->shape != tensor.shape || !std::ranges::equal(same->bytes, tensor.bytes))
            fail_at(tensor, file.path(),
                    "expected the same values as " + in_quotes(original) + ", of which this is a second name");
        return true;
    }
    return false;
}

}  // namespace detail

// Writes the parameters of all visits in one file, each under its name and in its own precision, with the metadata of
// the published files; beside the path, flushed, renamed. Throws errc::storage, and errc::usage for a name given twice.
template <class... Visits> void save_weights(std::string const& path, Visits const&... visits) {
    std::vector<stored_tensor> tensors;
    auto add = [&]<class T, class E, class Backend>(std::string const& name, param<T, E, Backend>& p) {
        static_assert(host_memory<Backend>, "calm::save_weights: the parameters must lie in host memory");
        std::span<T const> const values(p.value.data(), static_cast<std::size_t>(p.value.size()));
        tensors.push_back(to_store(name, detail::sizes_of(p.value.extents()), values));
    };
    (visits(add), ...);
    write_safetensors(path, tensors, {{"format", "pt"}});
}

// Reads every parameter of all visits, which must be there with its exact shape, as F16, BF16, F32 or F64. Tensors that
// nobody claims are an error, but for second names (`ties`) of those that are read. Everything is checked before the
// first weight changes. Throws errc::model_file, naming the file and the tensors.
template <class... Visits>
void load_weights(safetensors_file const& file, std::span<tied_name const> ties, Visits const&... visits) {
    std::set<std::string, std::less<>> claimed;
    std::vector<std::string> missing;
    auto check = [&](std::string const& name, auto& p) {
        require(p.value.data() != nullptr || p.value.size() == 0, errc::usage,
                [&] { return "calm::load_weights: expected memory for " + name + "; call calm::allocate first"; });
        claimed.insert(name);
        auto const* const tensor = file.find(name);
        if (tensor == nullptr) {
            missing.push_back(name);
            return;
        }
        auto const shape = detail::sizes_of(p.value.extents());
        if (tensor->shape != shape)
            detail::fail_at(*tensor, file.path(),
                            "expected shape " + text_of(shape) + ", found " + text_of(tensor->shape));
        if (!detail::is_float(tensor->type))
            detail::fail_at(*tensor, file.path(),
                            "expected type F16, BF16, F32 or F64, found " + std::string(name_of(tensor->type)));
    };
    (visits(check), ...);
    if (!missing.empty())
        throw error(errc::model_file, file.path(), "",
                    "expected " + std::to_string(claimed.size()) + " tensors, of which " +
                        std::to_string(missing.size()) + " are missing: " + detail::some_of(missing) +
                        "; the file is of another kind of model, or incomplete");
    std::vector<std::string> unknown;
    for (auto const& tensor : file.tensors())
        if (!claimed.contains(tensor.name) && !detail::repeats_another(file, tensor, ties))
            unknown.push_back(tensor.name);
    if (!unknown.empty())
        throw error(errc::model_file, file.path(), "",
                    "expected only tensors of this model, found also " + detail::some_of(unknown) +
                        "; the file is of another kind of model, or of other sizes");
    auto read = [&]<class T, class E, class Backend>(std::string const& name, param<T, E, Backend>& p) {
        file.read_into(file.at(name), std::span<T>(p.value.data(), static_cast<std::size_t>(p.value.size())));
    };
    (visits(read), ...);
}

// The vocabulary V that the table of a file has, for the model to be built with. Throws errc::model_file.
inline index_t stored_vocabulary(safetensors_file const& file, std::string_view table = "encoder.embed_tokens.weight") {
    auto const& tensor = file.at(table);
    if (tensor.shape.size() != 2)
        detail::fail_at(tensor, file.path(), "expected a table of shape [V, D], found " + text_of(tensor.shape));
    return tensor.shape[0];
}

}  // namespace calm
