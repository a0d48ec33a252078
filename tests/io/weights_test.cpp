// Weights in memory whose type differs from the file's.
#include "calm/emulated.hpp"
#include "calm/io/load_weights.hpp"
#include "calm/io/save_weights.hpp"
#include "calm/io/tensor_alias.hpp"

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <limits>

#include "calm/model/calm.hpp"
#include "calm/model/owned_model.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using in_float = autoencoder<small.autoencoder>;
using in_bf16 = autoencoder<small.autoencoder, bf16_weights>;

struct written {
    temporary_folder folder;
    owned_model<in_float> own{11, model_mode::inference};
    written() {
        initialise(context<>(5, 1), own.model);
        for (auto const& p : parameters_of(own.model))
            if (!p.decays) fill_normal(context<>(5, 1), p.value, key{3});
    }
    // Saves the weights in the given type.
    std::string saved(std::string const& name, stored_type as) {
        save_weights(folder.path(name), parameters_of(own.model), as);
        return folder.path(name);
    }
};

// Calls f(name, values of the model, tensor of the file) for every parameter loaded from a file.
template <class F> void with_loaded(std::string const& path, F const& f) {
    auto const file = safetensors_file::open(path);
    owned_model<in_bf16> read(11, model_mode::inference);
    load_weights(file, tied_names_of_autoencoder, parameters_of(read.model));
    for (auto const& p : parameters_of(read.model))
        with_values(p, [&](auto const& values) { f(p.name, values, file.at(p.name)); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_bf16_of_a_file_is_held_unchanged) {
    written model;
    std::size_t matrices = 0;
    with_loaded(model.saved("rounded", stored_type::bf16),
                [&]<class T>(std::string const& name, vector_view<T> const& values, stored_tensor const& tensor) {
                    if constexpr (std::is_same_v<T, bf16>) {
                        ++matrices;
                        BOOST_TEST((std::memcmp(values.data(), tensor.bytes.data(), tensor.bytes.size()) == 0), name);
                        BOOST_TEST(tensor.bytes.size() == 2 * static_cast<std::size_t>(values.size()), name);
                    } else {  // biases and gains
                        std::vector<float> want(tensor.count());
                        read_into(tensor, std::span(want), "");
                        BOOST_TEST(std::equal(want.begin(), want.end(), values.begin()), name);
                    }
                });
    BOOST_TEST(matrices == 17U);  // 4 layers with 3 each, and 5 others
}

BOOST_AUTO_TEST_CASE(the_fp32_of_a_file_is_rounded_to_nearest_where_bf16_is_held) {
    written model;
    with_loaded(model.saved("exact", stored_type::f32),
                []<class T>(std::string const& name, vector_view<T> const& values, stored_tensor const& tensor) {
                    std::vector<float> numbers(tensor.count());
                    read_into(tensor, std::span(numbers), "");
                    bool good = true;
                    for (index_t i = 0; i < values.size(); ++i) {
                        auto const bits = std::bit_cast<std::uint32_t>(numbers[static_cast<std::size_t>(i)]);
                        if constexpr (std::is_same_v<T, bf16>)
                            good = good && values[i].bits == (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
                        else
                            good = good && std::bit_cast<std::uint32_t>(values[i]) == bits;
                    }
                    BOOST_TEST(good, name);
                });
}

BOOST_AUTO_TEST_CASE(a_weight_that_is_too_large_for_bf16_is_refused) {
    written model;
    model.own.model.squeeze_layer.weight.value[7] = std::numeric_limits<float>::max();
    auto const path = model.saved("large", stored_type::f32);
    auto const said = sentence_of<error>([&] { with_loaded(path, [](auto const&...) {}); });
    BOOST_TEST(has(said, "squeeze_layer.weight"), said);
    BOOST_TEST(has(said, "expected values that a bf16 can hold, found a larger one"), said);
}

BOOST_AUTO_TEST_CASE(bf16_weights_are_written_unchanged) {
    written model;
    auto const path = model.saved("rounded", stored_type::bf16);
    auto const file = safetensors_file::open(path);
    owned_model<in_bf16> read(11, model_mode::inference);
    load_weights(file, tied_names_of_autoencoder, parameters_of(read.model));
    save_weights(model.folder.path("again"), parameters_of(read.model));
    auto const again = safetensors_file::open(model.folder.path("again"));
    for (auto const& tensor : file.tensors()) {
        auto const& same = again.at(tensor.name);
        BOOST_TEST((same.type == (tensor.shape.size() > 1 ? stored_type::bf16 : stored_type::f32)), tensor.name);
        if (same.type == stored_type::bf16) BOOST_TEST(std::ranges::equal(same.bytes, tensor.bytes), tensor.name);
    }
}

// The device's bf16 weights are loaded through the host.
BOOST_AUTO_TEST_CASE(a_device_holds_the_bf16_that_the_cpu_holds) {
    written model;
    auto const file = safetensors_file::open(model.saved("exact", stored_type::f32));
    owned_model<in_bf16> here(11, model_mode::inference);
    owned_model<autoencoder<small.autoencoder, bf16_weights_on<emulated>>> there(11, model_mode::inference);
    context<emulated> ctx(1, 1);
    load_weights(file, tied_names_of_autoencoder, parameters_of(here.model));
    load_weights(ctx, file, tied_names_of_autoencoder, parameters_of(there.model));
    save_weights(model.folder.path("here"), parameters_of(here.model));
    save_weights(ctx, model.folder.path("there"), parameters_of(there.model));
    BOOST_TEST(model.folder.content("here") == model.folder.content("there"));
}
