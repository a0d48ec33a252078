// Models whose matrices are in int8: converted, read as any other type, and converted back.
#include "calm/io/detail/int8_tensors.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <filesystem>
#include <vector>

#include "calm/io/convert_model.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

namespace {

std::vector<float> floats_of(tensor_table const& table, stored_tensor const& tensor) {
    std::vector<float> values(tensor.count());
    table.read_into(tensor, std::span(values));
    return values;
}

std::string written_model(temporary_folder const& folder) {
    std::filesystem::copy(checkpoint("base", "calm"), folder.path("from"), std::filesystem::copy_options::recursive);
    return folder.path("from");
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_model_in_int8_is_read_and_converted_back_exactly) {
    temporary_folder const folder;
    auto const from = written_model(folder);
    convert_model(from, folder.path("int8"), {.as = stored_type::i8});
    auto const before = open_weights(from), in_int8 = open_weights(folder.path("int8"));
    // In the file bytes and scales are tensors of their own.
    auto const file = safetensors_file::open(folder.path("int8/model.safetensors"));
    std::size_t matrices = 0;
    for (auto const& tensor : in_int8.tensors()) {
        auto const want = floats_of(before, before.at(tensor.name)), got = floats_of(in_int8, tensor);
        bool const fits = tensor.shape.size() == 2 && tensor.shape[1] % 32 == 0;
        BOOST_TEST((tensor.type == stored_type::i8) == fits, tensor.name);
        if (!fits) {
            BOOST_TEST(want == got, tensor.name);
            continue;
        }
        ++matrices;
        auto const* const scales = file.find(tensor.name + ".scales");
        BOOST_REQUIRE(scales != nullptr);
        BOOST_TEST((scales->type == stored_type::bf16));
        BOOST_TEST((scales->shape == std::vector<index_t>{tensor.shape[0], tensor.shape[1] / 32}));
        for (std::size_t i = 0; i < got.size(); i += 32) {
            float most = 0, worst = 0;
            for (std::size_t j = i; j < i + 32; ++j) {
                most = std::max(most, std::abs(want[j]));
                worst = std::max(worst, std::abs(want[j] - got[j]));
            }
            BOOST_REQUIRE(worst <= most / 127 * 0.51F);
        }
    }
    BOOST_TEST(matrices > 5U);

    convert_model(folder.path("int8"), folder.path("copy"));
    BOOST_TEST(folder.content("copy/model.safetensors") == folder.content("int8/model.safetensors"));
    convert_model(folder.path("int8"), folder.path("shards"), {.as = {}, .shard_bytes = 50'000});
    auto const shards = open_weights(folder.path("shards"));
    BOOST_TEST(shards.files() > 1U);
    convert_model(folder.path("int8"), folder.path("wide"), {.as = stored_type::f32});
    auto const wide = open_weights(folder.path("wide"));
    for (auto const& tensor : in_int8.tensors()) {
        auto const values = floats_of(in_int8, tensor);
        BOOST_TEST(floats_of(wide, wide.at(tensor.name)) == values, tensor.name);
        BOOST_TEST(floats_of(shards, shards.at(tensor.name)) == values, tensor.name);
        BOOST_TEST((wide.at(tensor.name).type == stored_type::f32));
    }
    convert_model(folder.path("wide"), folder.path("again"), {.as = stored_type::i8});
    BOOST_TEST(folder.content("again/model.safetensors") == folder.content("int8/model.safetensors"));
}

BOOST_AUTO_TEST_CASE(bytes_without_fitting_scales_are_refused) {
    temporary_folder const folder;
    auto const from = written_model(folder);
    convert_model(from, folder.path("int8"), {.as = stored_type::i8});
    auto const path = folder.path("int8/model.safetensors");
    auto const file = safetensors_file::open(path);
    auto const rewritten = [&](auto const& change) {
        std::vector<stored_tensor> tensors;
        for (auto const& tensor : file.tensors()) {
            tensors.push_back(tensor);
            if (!change(tensors.back())) tensors.pop_back();
        }
        write_safetensors(path, tensors, file.metadata());
        return sentence_of<error>([&] { static_cast<void>(read_model_description(folder.path("int8"))); });
    };
    std::string name;
    auto const missing = rewritten([&](stored_tensor const& tensor) {
        if (!name.empty() || !tensor.name.ends_with(".scales")) return true;
        name = tensor.name;
        return false;
    });
    BOOST_TEST(has(missing, "or I8 with '" + name + "', found I8"), missing);
    auto const other = rewritten([&](stored_tensor& tensor) {
        if (tensor.name == name) tensor.shape = {tensor.shape[0] * tensor.shape[1]};
        return true;
    });
    BOOST_TEST(has(other, "found also '" + name + "'"), other);
    std::vector<std::uint16_t> const infinite(file.at(name).count(), 0x7F80);
    static_cast<void>(rewritten([&](stored_tensor& tensor) {
        if (tensor.name == name) tensor.bytes = std::as_bytes(std::span(infinite));
        return true;
    }));
    auto const read = open_weights(folder.path("int8"));
    auto const refused = sentence_of<error>([&] {
        for (auto const& tensor : read.tensors()) require_finite(tensor, path);
    });
    BOOST_TEST(has(refused, "scale 0"), refused);
}
