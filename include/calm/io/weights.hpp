#pragma once
// Parameters to and from files of weights, under the names that visit() gives them: of a model those of parameters_of,
// and of frozen_parameters_of.

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/stored_tensor.hpp"
#include "calm/io/tensor_table.hpp"
#include "calm/nn/param.hpp"
#include "calm/tensor/copy.hpp"

namespace calm {

// A second name of a tensor that some files hold twice. A name that ends in '.' stands for all that begin with it.
struct tied_name {
    std::string_view name;     // the second name
    std::string_view same_as;  // the first
};
// In a published autoencoder.
inline constexpr std::array<tied_name, 1> tied_names_of_autoencoder{
    {{"decoder.lm_head_weight", "encoder.embed_tokens.weight"}}};
// In a published CALM.
inline constexpr std::array<tied_name, 2> tied_names_of_calm{
    {{"ae_model.decoder.lm_head_weight", "ae_model.encoder.embed_tokens.weight"},
     {"generative_head.", "mlp_generator."}}};
// In an autoregressive model whose config.json says tie_word_embeddings.
inline constexpr std::array<tied_name, 1> tied_names_of_tied_autoregressive{
    {{"lm_head.weight", "model.embed_tokens.weight"}}};

namespace detail {

// "'a', 'b' and 3 more"
inline std::string some_of(std::vector<std::string> const& names) {
    constexpr std::size_t most = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + in_quotes(names[i]);
    if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
    return text;
}

// A tensor that no parameter claims: fine where it repeats one that is read.
inline bool repeats_another(tensor_table const& file, stored_tensor const& tensor, std::span<tied_name const> ties) {
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

namespace detail {

// The parameters of a device's model as the host has them: the same names, shapes and types, memory of their own, all
// zero.
template <class Space> class parameters_on_host {
public:
    using parameter = any_parameter<
        space<cpu, typename Space::storage, typename Space::compute, typename Space::master, typename Space::weights>>;

    explicit parameters_on_host(std::vector<any_parameter<Space>> const& parameters) {
        for (auto const& p : parameters)
            with_values(p, [&]<class T, class B>(vector_view<T, dyn, B> const& there) {
                auto const value = memory_.take<T>(there.extents());
                std::fill_n(value.data(), value.size(), T{});
                all_.push_back({p.name,
                                p.shape,
                                value,
                                {nullptr, there.extents()},
                                p.starts,
                                p.decays,
                                p.is_hidden,
                                nullptr,
                                nullptr,
                                nullptr});
            });
    }
    [[nodiscard]] std::vector<parameter> const& all() const { return all_; }

private:
    arena<> memory_{"values on the host"};
    std::vector<parameter> all_;
};

}  // namespace detail

// Writes parameters in one file, each under its name and as the type `as`, or else in its own precision, with the
// metadata of the published files; beside the path, flushed, renamed. Throws errc::storage, errc::usage for a name
// given twice, and errc::non_finite where a value is none, or is too large for the type: nothing is written then.
template <class Space>
requires std::is_same_v<typename Space::backend, cpu>
void save_weights(std::string const& path, std::vector<any_parameter<Space>> const& parameters,
                  std::optional<stored_type> as = std::nullopt) {
    std::vector<stored_tensor> tensors;
    tensors.reserve(parameters.size());
    for (auto const& p : parameters) {
        with_values(p, [&]<class T, class B>(vector_view<T, dyn, B> const& values) {
            tensors.push_back(to_store(p.name, p.shape, detail::on_this_side(vector_view<T const, dyn, B>(values))));
        });
        require_finite(tensors.back());
    }
    write_safetensors(path, tensors, {{"format", "pt"}}, as);
}

// Reads every parameter, which must be there with its exact shape, as F16, BF16, F32 or F64; one that is stored in bf16
// is rounded to nearest, ties to even, and a BF16 of the file stays as it is. Tensors that nobody claims
// are an error, but for second names (`ties`) of those that are read. Everything is checked before the first weight
// changes. Throws errc::model_file, naming the file and the tensors, and errc::non_finite with the place of a value
// that is not a finite number.
template <class Space>
requires std::is_same_v<typename Space::backend, cpu>
void load_weights(tensor_table const& file, std::span<tied_name const> ties,
                  std::vector<any_parameter<Space>> const& parameters) {
    std::set<std::string, std::less<>> claimed;
    std::vector<std::string> missing;
    for (auto const& p : parameters) {
        with_values(p, [&](auto const& values) {
            require(values.data() != nullptr || values.size() == 0, errc::usage,
                    "calm::load_weights: expected memory for ", p.name, "; call calm::allocate first");
        });
        claimed.insert(p.name);
        auto const* const tensor = file.find(p.name);
        if (tensor == nullptr) {
            missing.push_back(p.name);
            continue;
        }
        if (tensor->shape != p.shape)
            detail::fail_at(*tensor, file.path(),
                            "expected shape " + text_of(p.shape) + ", found " + text_of(tensor->shape));
        if (!detail::is_float(tensor->type))
            detail::fail_at(*tensor, file.path(),
                            "expected type F16, BF16, F32 or F64, found " + std::string(name_of(tensor->type)));
        require_finite(*tensor, file.path());
    }
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
    for (auto const& p : parameters)
        with_values(p, [&](auto const& values) { file.read_into(file.at(p.name), detail::on_this_side(values)); });
}

// Writes parameters of any executor as above: of a device by way of the host, which needs room for them once more.
template <class Backend, class Space>
void save_weights(context<Backend> const& ctx, std::string const& path,
                  std::vector<any_parameter<Space>> const& parameters, std::optional<stored_type> as = std::nullopt) {
    if constexpr (device_memory<Backend>) {
        detail::parameters_on_host<Space> const here(parameters);
        copy_parameters(ctx, here.all(), parameters);
        save_weights(path, here.all(), as);
    } else {
        save_weights(path, parameters, as);
    }
}
// Reads them as above, to any executor.
template <class Backend, class Space>
void load_weights(context<Backend> const& ctx, tensor_table const& file, std::span<tied_name const> ties,
                  std::vector<any_parameter<Space>> const& parameters) {
    if constexpr (device_memory<Backend>) {
        detail::parameters_on_host<Space> const here(parameters);
        load_weights(file, ties, here.all());
        copy_parameters(ctx, parameters, here.all());
    } else {
        load_weights(file, ties, parameters);
    }
}

// The vocabulary V that the table of a file has, for the model to be built with. Throws errc::model_file.
inline index_t stored_vocabulary(tensor_table const& file, std::string_view table = "encoder.embed_tokens.weight") {
    auto const& tensor = file.at(table);
    if (tensor.shape.size() != 2)
        detail::fail_at(tensor, file.path(), "expected a table of shape [V, D], found " + text_of(tensor.shape));
    return tensor.shape[0];
}

}  // namespace calm
