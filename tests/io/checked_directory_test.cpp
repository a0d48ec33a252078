// The common check of model directories: every reader reports any tensor that is missing, unknown, reshaped or of
// integers, for every kind of model.
#include <boost/mpl/list.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "calm/io/convert_model.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/load_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/stored_model.hpp"
#include "support/config_file.hpp"
#include "support/heads.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration tokenwise{.llama = llama_sizes_of(smallest)};

template <class Head> struct calm_with {
    static void write(std::string const& path) {
        constexpr auto C = with_head(smallest, Head{});
        owned_model<calm_model<C>> own(7, model_mode::inference);
        save_model(path, own.model, describe_model<C>(7, {}, {}, {}));
    }
};
struct autoencoder_alone {
    static void write(std::string const& path) {
        owned_model<autoencoder<smallest.autoencoder>> own(7, model_mode::inference);
        save_model(path, own.model, describe_model<smallest.autoencoder>(7, {}, {}));
    }
};
struct autoregressive {
    static void write(std::string const& path) {
        owned_model<autoregressive_model<tokenwise>> own(7, model_mode::inference);
        save_model(path, own.model, describe_model<tokenwise>(7, {}));
    }
};
using kinds = boost::mpl::list<calm_with<energy>, calm_with<flow>, calm_with<diffusion>, calm_with<margin>,
                               calm_with<drafted>, autoencoder_alone, autoregressive>;

using tensors = std::vector<stored_tensor>;

// The error message for a directory with these tensors; a conversion gives an equal message and leaves no output.
std::string refusal(std::string const& directory, tensors const& all) {
    write_safetensors(directory + "/model.safetensors", all, {{"format", "pt"}});
    auto said = sentence_of<error>([&] { static_cast<void>(read_model_description(directory)); });
    BOOST_TEST(sentence_of<error>([&] { convert_model(directory, directory + "-to"); }) == said);
    BOOST_TEST(!std::filesystem::exists(directory + "-to"));
    return said;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(every_reader_reports_a_wrong_tensor, kind, kinds) {
    temporary_folder const folder;
    kind::write(folder.path("whole"));
    BOOST_CHECK_NO_THROW(read_model_description(folder.path("whole")));
    std::filesystem::copy(folder.path("whole"), folder.path("changed"));
    auto const file = safetensors_file::open(folder.path("whole/model.safetensors"));
    tensors const all(file.tensors().begin(), file.tensors().end());
    std::vector<float> const more(64);
    std::vector<std::int32_t> const integers(4096);
    for (std::size_t i = 0; i < all.size(); ++i) {
        auto const name = "'" + all[i].name + "'";
        auto const is_told = [&](std::function<void(tensors&)> const& change, std::string const& what) {
            auto changed = all;
            change(changed);
            auto const said = refusal(folder.path("changed"), changed);
            BOOST_TEST(has(said, "changed/model.safetensors: expected "), said);
            BOOST_TEST(has(said, what), said << " for " << what);
        };
        is_told([&](tensors& t) { t.erase(t.begin() + static_cast<std::ptrdiff_t>(i)); }, "; 1 missing: " + name);
        is_told([&](tensors& t) { t[i].shape.push_back(1); }, name + ": expected shape " + text_of(all[i].shape));
        if (all[i].shape.size() == 2 && all[i].shape[0] != all[i].shape[1])
            is_told([&](tensors& t) { std::ranges::reverse(t[i].shape); },
                    name + ": expected shape " + text_of(all[i].shape));
        is_told([&](tensors& t) { t[i] = to_store(t[i].name, t[i].shape, std::span(integers).first(t[i].count())); },
                name + ": expected type F16, BF16, F32 or F64, found I32");
    }
    for (std::string const name : {"more", "model.layers.1.mlp.up_proj.weight", "mlp_generator.more.weight"}) {
        auto changed = all;
        changed.push_back(to_store(name, {8, 8}, std::span(more)));
        auto const said = refusal(folder.path("changed"), changed);
        BOOST_TEST(has(said, "; found also '" + name + "'"), said);
    }
}

// Sizes missing from a CALM's config.json follow from the shapes of its tensors; the rest is checked.
BOOST_AUTO_TEST_CASE(a_published_calm_is_checked_as_far_as_its_shapes_agree) {
    temporary_folder const folder;
    auto const path = folder.path("model");
    calm_with<energy>::write(path);
    auto description = read_config_json(path + "/config.json");
    description.calm.reset();
    write_config_json(path + "/config.json", description);
    auto const different = differences(with_head(smallest, energy{}), read_model_description(path));
    BOOST_TEST(different == std::vector<std::string>(), boost::test_tools::per_element());
    std::filesystem::copy(path + "/model.safetensors", folder.path("kept"));
    auto const kept = safetensors_file::open(folder.path("kept"));
    tensors all(kept.tensors().begin(), kept.tensors().end());
    auto& changed = *std::ranges::find(all, "ae_model.decoder.expand_layer.bias", &stored_tensor::name);
    changed.shape = {4, 2};
    BOOST_TEST(has(refusal(path, all), "'ae_model.decoder.expand_layer.bias': expected shape [8], found [4, 2]"));
}

BOOST_AUTO_TEST_CASE(sizes_that_no_model_has_are_refused_before_tensors_are_compared) {
    temporary_folder const folder;
    auto const path = folder.path("model");
    autoregressive::write(path);
    auto description = read_config_json(path + "/config.json");
    description.llama.num_attention_heads = 3;
    write_config_json(path + "/config.json", description);
    auto const said = sentence_of<error>([&] { static_cast<void>(read_model_description(path)); });
    BOOST_TEST(has(said, "config.json: expected num_attention_heads to divide hidden_size"), said);
}

// A head that lists no tensors is checked when its network is loaded.
BOOST_AUTO_TEST_CASE(tensors_of_a_head_that_lists_none_are_left_to_its_network) {
    auto unlisted = head_traits_of<energy>();
    unlisted.tensors = nullptr;
    auto any = with_any_head(smallest);
    any.head.facts = &unlisted;
    tensor_shapes expected;
    add_tensors(expected, any);
    BOOST_REQUIRE(expected.unknown_from.size() == 1);
    BOOST_TEST(expected.unknown_from[0] == "mlp_generator.");
    std::vector<float> const values(8);
    tensors all{to_store("mlp_generator.anything", {8}, std::span(values))};
    for (auto const& [name, shape] : expected.all) BOOST_TEST(!name.starts_with("mlp_generator."));
    tensor_shapes only_head;
    only_head.unknown_from = expected.unknown_from;
    BOOST_CHECK_NO_THROW(check_tensors({"file", all, {}}, {}, only_head));
    all.push_back(to_store("mlp_generators", {8}, std::span(values)));
    BOOST_CHECK_THROW(check_tensors({"file", all, {}}, {}, only_head), error);
}

BOOST_AUTO_TEST_CASE(weights_of_another_layout_that_are_not_read_are_known) {
    temporary_folder const folder;
    auto const path = folder.path("model");
    autoencoder_alone::write(path);
    BOOST_TEST(read_model_description(path).weights->unread().empty());
    static_cast<void>(folder.with("model/model.safetensors.index.json", "{}"));
    static_cast<void>(folder.with("model/pytorch_model.bin", "x"));
    auto const unread = read_model_description(path).weights->unread();
    BOOST_REQUIRE(unread.size() == 2);
    BOOST_TEST(unread[0] == "model.safetensors.index.json");
    BOOST_TEST(unread[1] == "pytorch_model.bin");
}
