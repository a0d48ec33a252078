#include "calm/io/convert_model.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "calm/io/open_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/stored_weights.hpp"
#include "support/fixtures.hpp"
#include "support/models.hpp"
#include "support/sentences.hpp"
#include "support/stored.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE(every_layout_becomes_the_same_file) {
    temporary_folder const folder;
    auto const plain = open_weights(checkpoint("base", "calm"));
    for (auto const* const name : {"calm", "calm_sharded", "calm_bin"}) {
        auto const to = folder.path(name);
        convert_model(checkpoint("base", name), to);
        auto const made = open_weights(to);
        BOOST_TEST((made.layout() == weights_layout::safetensors));
        check_same(plain, made);
        BOOST_TEST(configuration_in(to) == configuration_in(checkpoint("base", name)));
    }
}

BOOST_AUTO_TEST_CASE(precision_and_files_are_chosen) {
    temporary_folder const folder;
    auto const rounded = open_weights(checkpoint("base", "calm_bf16"));
    for (std::uint64_t const bytes : {std::uint64_t{1}, std::uint64_t{10'000}, std::uint64_t{1} << 40}) {
        auto const to = folder.path("bf16_" + std::to_string(bytes));
        convert_model(checkpoint("base", "calm_bin"), to, {.as = stored_type::bf16, .shard_bytes = bytes});
        auto const made = open_weights(to);
        check_same(rounded, made);
        BOOST_TEST((made.layout() == weights_layout::safetensors) == (bytes > 1'000'000));
        if (bytes == 1) BOOST_TEST(made.files() == made.tensors().size());
        BOOST_TEST(configuration_in(to) == configuration_in(checkpoint("base", "calm_bf16")));
        // And back: the type is wider, the values stay rounded.
        auto const back = folder.path("f32_" + std::to_string(bytes));
        convert_model(to, back, {.as = stored_type::f32, .shard_bytes = 50'000});
        auto const wide = open_weights(back);
        for (auto const& tensor : rounded.tensors()) {
            std::vector<float> a(tensor.count());
            std::vector<float> b(tensor.count());
            rounded.read_into(tensor, std::span(a));
            BOOST_TEST((wide.at(tensor.name).type == stored_type::f32));
            wide.read_into(wide.at(tensor.name), std::span(b));
            BOOST_TEST(a == b, tensor.name);
        }
        BOOST_TEST((read_model_description(back).sizes == with_any_head(base)));
    }
}

BOOST_AUTO_TEST_CASE(shards_are_filled_up_to_their_limit) {
    std::vector<float> const values(12);
    auto const of = [&](index_t n) {
        return to_store("t" + std::to_string(n), {n}, std::span(values).first(static_cast<std::size_t>(n)));
    };
    std::vector<stored_tensor> const tensors{of(1), of(2), of(12), of(3), of(4)};
    using begins = std::vector<std::size_t>;
    BOOST_TEST((detail::shard_begins(tensors, {}, 1000) == begins{0}));
    BOOST_TEST((detail::shard_begins(tensors, {}, 28) == begins{0, 2, 3}));
    BOOST_TEST((detail::shard_begins(tensors, {}, 12) == begins{0, 2, 3, 4}));
    BOOST_TEST((detail::shard_begins(tensors, stored_type::f16, 14) == begins{0, 2, 3}));
    BOOST_TEST((detail::shard_begins(tensors, {}, 1) == begins{0, 1, 2, 3, 4}));
    BOOST_TEST((detail::shard_begins({}, {}, 1) == begins{0}));
    BOOST_TEST(detail::shard_name(2, 100'000) == "model-00002-of-100000.safetensors");
}

BOOST_AUTO_TEST_CASE(files_of_the_model_are_copied_along) {
    temporary_folder const folder;
    auto const from = folder.path("from");
    std::filesystem::copy(checkpoint("base", "calm"), from);
    for (auto const* const name : {"tokenizer.model", "tokenizer_config.json", "bigram.counts", "metrics.jsonl",
                                   "manifest.json", "training_args.bin"})
        std::ofstream(from + "/" + name) << name;
    auto const to = folder.path("to");
    convert_model(from, to);
    for (auto const* const name : {"tokenizer.model", "tokenizer_config.json", "bigram.counts"})
        BOOST_TEST(folder.content(std::string("to/") + name) == name);
    for (auto const* const name : {"metrics.jsonl", "manifest.json", "training_args.bin"})
        BOOST_TEST(!std::filesystem::exists(to + "/" + name));
    BOOST_TEST(has(sentence_of<error>([&] { convert_model(from, to); }), "expected a path that does not exist yet"));
}

BOOST_AUTO_TEST_CASE(a_file_larger_than_any_that_is_read_is_not_copied) {
    temporary_folder const folder;
    auto const from = folder.path("from");
    std::filesystem::copy(checkpoint("base", "autoencoder"), from);
    for (auto const& [name, most] :
         {std::pair{"tokenizer.model", limits::tokenizer_file}, std::pair{"bigram.counts", std::uint64_t{1} << 31}}) {
        std::ofstream(from + "/" + name) << "x";
        std::filesystem::resize_file(from + "/" + name, most + 1);  // a sparse file
        auto const said = sentence_of<error>([&] { convert_model(from, folder.path("to")); });
        BOOST_TEST(has(said, std::string(name) + ": expected at most " + std::to_string(most) + " bytes"), said);
        BOOST_TEST(!std::filesystem::exists(folder.path("to")));
        std::filesystem::remove(from + "/" + name);
    }
}

// Even if config.json stated a precision incompletely before.
BOOST_AUTO_TEST_CASE(the_precision_of_all_tensors_is_stated) {
    temporary_folder const folder;
    auto const from = folder.path("from");
    std::filesystem::copy(checkpoint("base", "calm_bf16"), from);
    auto json = configuration_in(from);
    json.erase("torch_dtype");
    json["dtype"] = "float32";
    std::ofstream(from + "/config.json") << json.dump();
    convert_model(from, folder.path("to"));
    BOOST_TEST(configuration_in(folder.path("to"))["dtype"] == "bfloat16");
    BOOST_TEST(!configuration_in(folder.path("to")).contains("torch_dtype"));
    convert_model(folder.path("to"), folder.path("wide"), {.as = stored_type::f32});
    BOOST_TEST(configuration_in(folder.path("wide"))["dtype"] == "float32");
    BOOST_TEST(!configuration_in(folder.path("wide")).contains("torch_dtype"));
}

BOOST_AUTO_TEST_CASE(links_that_lead_out_of_a_model_are_refused) {
    temporary_folder const folder;
    namespace fs = std::filesystem;
    auto const from = folder.path("from");
    fs::copy(checkpoint("base", "calm"), from);
    auto const secret = folder.with("secret", "secret");
    fs::rename(from + "/config.json", from + "/inside.json");
    fs::create_symlink("inside.json", from + "/config.json");
    fs::create_symlink("nowhere", from + "/merges.txt");
    BOOST_CHECK_NO_THROW(convert_model(from, folder.path("to")));
    fs::create_symlink(secret, from + "/tokenizer.model");
    auto const said = sentence_of<error>([&] { convert_model(from, folder.path("no")); });
    BOOST_TEST(has(said, "tokenizer.model: is a link to a file outside of the model's directory"), said);
    BOOST_TEST(!fs::exists(folder.path("no")));
    // A cache of Hugging Face's hub: links to its own blobs are allowed, other links are not.
    fs::create_directories(folder.path("hub/snapshots"));
    fs::create_directories(folder.path("hub/blobs"));
    fs::remove(from + "/tokenizer.model");
    fs::rename(from + "/inside.json", folder.path("hub/blobs/0123"));
    fs::remove(from + "/config.json");
    fs::create_symlink("../../blobs/0123", from + "/config.json");
    fs::rename(from, folder.path("hub/snapshots/main"));
    BOOST_CHECK_NO_THROW(read_model_description(folder.path("hub/snapshots/main")));
    fs::create_symlink(secret, folder.path("hub/snapshots/main/tokenizer.model"));
    BOOST_CHECK_THROW(read_model_description(folder.path("hub/snapshots/main")), error);
}

BOOST_AUTO_TEST_CASE(an_autoencoder_that_lies_elsewhere_is_taken_in) {
    temporary_folder const folder;
    std::filesystem::copy(checkpoint("base", "autoencoder"), folder.path("autoencoder"));
    auto const whole = open_weights(checkpoint("base", "calm"));
    std::vector<stored_tensor> own;
    for (auto const& tensor : whole.tensors())
        if (!tensor.name.starts_with("ae_model.")) own.push_back(tensor);
    std::filesystem::create_directory(folder.path("calm"));
    std::filesystem::copy(checkpoint("base", "calm") + "/config.json", folder.path("calm/config.json"));
    write_safetensors(folder.path("calm/model.safetensors"), own);
    convert_model(folder.path("calm"), folder.path("to"));
    auto const made = open_weights(folder.path("to"));
    auto const beside = open_weights(checkpoint("base", "autoencoder"));
    BOOST_TEST(made.tensors().size() == whole.tensors().size());
    for (auto const& tensor : beside.tensors())
        BOOST_TEST(std::ranges::equal(tensor.bytes, made.at("ae_model." + tensor.name).bytes), tensor.name);
    std::filesystem::remove_all(folder.path("autoencoder"));
    BOOST_TEST((read_model_description(folder.path("to")).sizes == with_any_head(base)));
}

BOOST_AUTO_TEST_CASE(a_failed_conversion_leaves_nothing) {
    temporary_folder const folder;
    auto const from = folder.path("from");
    std::filesystem::copy(checkpoint("base", "autoencoder"), from);
    auto const file = open_weights(checkpoint("base", "autoencoder"));
    std::vector<stored_tensor> tensors(file.tensors().begin(), file.tensors().end());
    std::vector<float> const large(tensors[1].count(), 1e30F);
    tensors[1] = to_store(tensors[1].name, tensors[1].shape, std::span(large));
    write_safetensors(from + "/model.safetensors", tensors);
    auto const to = folder.path("to");
    auto const said = sentence_of<error>([&] { convert_model(from, to, {.as = stored_type::f16}); });
    BOOST_TEST(has(said, "'" + tensors[1].name + "': expected values that F16 can hold, found 1"), said);
    BOOST_TEST(!std::filesystem::exists(to));
    BOOST_TEST(!std::filesystem::exists(to + ".partial"));
}
