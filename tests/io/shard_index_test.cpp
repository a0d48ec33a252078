#include "calm/io/detail/shard_index.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "calm/io/open_weights.hpp"
#include "calm/io/stored_weights.hpp"
#include "support/archives.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr char const* index_name = "model.safetensors.index.json";

std::string complaint(auto&& call) {
    try {
        call();
    } catch (error const& thrown) {
        BOOST_TEST((thrown.code() == errc::model_file));
        return thrown.what();
    }
    return "read";
}

// A directory with two shards: a and b in the first, c in the second.
struct sharded_model {
    temporary_folder folder;
    std::vector<float> values{1, 2, 3};

    sharded_model() {
        write("1.safetensors", {"a", "b"});
        write("2.safetensors", {"c"});
    }
    void write(std::string const& file, std::vector<std::string> const& names) const {
        std::vector<stored_tensor> tensors;
        for (auto const& name : names) tensors.push_back(to_store(name, {3}, std::span<float const>(values)));
        write_safetensors(folder.path(file), tensors, {{"format", "pt"}});
    }
    [[nodiscard]] std::string open(std::string const& index) const {
        static_cast<void>(folder.with(index_name, index));
        return complaint([&] { static_cast<void>(open_weights(folder.path(""))); });
    }
};

std::string const two_files = R"({"metadata":{"total_size":36},"weight_map":{"a":"1.safetensors","b":"1.safetensors",)"
                              R"("c":"2.safetensors"}})";

std::string with(std::string text, std::string const& from, std::string const& to) {
    return text.replace(text.find(from), from.size(), to);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_byte_order_mark_before_an_index_is_dropped) {
    sharded_model const model;
    BOOST_TEST(model.open("\xef\xbb\xbf" + two_files) == "read");
}

BOOST_AUTO_TEST_CASE(several_files_are_one_table) {
    sharded_model const model;
    for (auto const& index :
         {two_files, with(two_files, "36", "36.0"), with(two_files, R"("metadata":{"total_size":36},)", ""),
          with(two_files, R"("total_size":36)", ""), with(two_files, "36", R"(36,"more":[1])")})
        BOOST_TEST(model.open(index) == "read");
    static_cast<void>(model.folder.with(index_name, two_files));
    auto const weights = open_weights(model.folder.path(""));
    BOOST_TEST((weights.layout() == weights_layout::sharded_safetensors));
    BOOST_TEST(weights.files() == 2U);
    BOOST_TEST(weights.path() == model.folder.path(index_name));
    BOOST_TEST(weights.tensors().size() == 3U);
    BOOST_TEST(weights.metadata().at("format") == "pt");
    std::vector<float> c(3);
    weights.read_into(weights.at("c"), std::span(c));
    BOOST_TEST((c == model.values));
    BOOST_CHECK_THROW(static_cast<void>(weights.at("d")), error);
}

BOOST_AUTO_TEST_CASE(the_one_file_is_taken_before_several) {
    sharded_model const model;
    static_cast<void>(model.folder.with(index_name, two_files));
    model.write("model.safetensors", {"only"});
    BOOST_TEST(open_weights(model.folder.path("")).tensors().size() == 1U);
    temporary_folder const empty;
    auto const said = complaint([&] { static_cast<void>(open_weights(empty.path(""))); });
    BOOST_TEST(has(said, "expected model.safetensors, pytorch_model.bin or the .index.json of either, found none"));
}

BOOST_AUTO_TEST_CASE(several_archives_of_torch_are_one_table_too) {
    using namespace pickled;
    temporary_folder const folder;
    auto const archive = [&](std::string const& items) {
        return zip_of(torch_parts(dictionary(items), {std::string(24, '\0')}));
    };
    static_cast<void>(
        folder.with("1.bin", archive(text("a") + made_tensor{}.made() + "q\x01" + text("tied") + "h\x01")));
    static_cast<void>(folder.with("2.bin", archive(text("b") + made_tensor{}.made())));
    for (auto const* const total : {"48", "72"}) {  // without and with the second name: both occur
        static_cast<void>(folder.with("pytorch_model.bin.index.json",
                                      std::string(R"({"metadata":{"total_size":)") + total +
                                          R"(},"weight_map":{"a":"1.bin","tied":"1.bin","b":"2.bin"}})"));
        auto const weights = open_weights(folder.path(""));
        BOOST_TEST((weights.layout() == weights_layout::sharded_pytorch));
        BOOST_TEST(weights.tensors().size() == 3U);
    }
}

BOOST_AUTO_TEST_CASE(every_bad_index_has_its_own_error) {
    struct bad {
        std::string index;
        std::string says;
    };
    auto const file = [](std::string const& name) { return R"({"weight_map":{"a":)" + name + "}}"; };
    std::string const same = "tensor 'a': expected the name of a file in the same directory, found ";
    std::string const name = "tensor 'a': expected the name of a file, found ";
    std::string const object = "byte 0: expected a JSON object, found none: ";
    std::string const total = "key 'metadata/total_size': expected a whole number of bytes, found ";
    std::vector<bad> const files{
        {"", object},
        {"[]", object},
        {"null", object},
        {"{", object},
        {two_files + "x", object},
        {"\xff", object},
        {std::string(2000, '['), object},
        {"{}", "expected a key 'weight_map', found none"},
        {R"({"weight_map":{}})", "expected the file of every tensor, found no tensor"},
        {R"({"weight_map":[]})", "key 'weight_map': expected an object of file names, found '[]'"},
        {R"({"weight_map":null})", "key 'weight_map': expected an object of file names, found 'null'"},
        {R"({"weight_map":{"a":"x"},"weight_map":{"a":"x"}})", "expected the key 'weight_map' once, found it twice"},
        {R"({"metadata":{},"metadata":{},"weight_map":{"a":"x"}})", "expected the key 'metadata' once, found it twice"},
        {R"({"metadata":7,"weight_map":{"a":"x"}})", "key 'metadata': expected an object, found '7'"},
        {with(two_files, "36", "-1"), total + "'-1'"},
        {with(two_files, "36", "36.5"), total + "'36.5'"},
        {with(two_files, "36", "\"36\""), total + "'\"36\"'"},
        {with(two_files, "36", "null"), total + "'null'"},
        {with(two_files, "36", "1e300"), total},
        {with(two_files, "36", "36,\"total_size\":36"), "expected it once, found it twice"},
        {with(two_files, "36", "35"), "expected the bytes of all tensors, 36, found 35"},
        {with(two_files, "36", "18446744073709551615"),
         "expected the bytes of all tensors, 36, found 18446744073709551615"},
        {file("1"), name + "'1'"},
        {file("null"), name + "'null'"},
        {file("[\"x\"]"), name + "'[\"x\"]'"},
        {file("\"\""), same + "''"},
        {file("\".\""), same + "'.'"},
        {file("\"..\""), same + "'..'"},
        {file("\"../1.safetensors\""), same + "'../1.safetensors'"},
        {file("\"/etc/passwd\""), same + "'/etc/passwd'"},
        {file("\"folder/1.safetensors\""), same + "'folder/1.safetensors'"},
        {file("\"..\\\\1.safetensors\""), same},
        {file("\"1.safetensors\\u0000\""), same + "'1.safetensors\\x00'"},
        {file("\"a\\nb\""), same + "'a\\nb'"},
        {file("\"" + std::string(256, 'n') + "\""), same},
        {R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})", "tensor 'a': expected it once, found it twice"},
        {with(two_files, "2.safetensors", "3.safetensors"),
         "file '3.safetensors': expected it next to the index, found none"},
        {with(two_files, R"("a":"1)", R"("a":"2)"),
         "tensor 'a': expected it in file '2.safetensors', found it in '1.safe"},
        {with(two_files, R"("c":)", R"("d":"2.safetensors","c":)"),
         "tensor 'd': expected it in file '2.safetensors', found it nowhere"},
        {with(two_files, R"("b":"1.safetensors",)", ""),
         "tensor 'b': expected only tensors that the index lists, found it in file '1.safetensors'"},
        {with(two_files, "2.safetensors", index_name), "expected a header of at most"},
    };
    BOOST_TEST(files.size() >= 40U);
    sharded_model const model;
    for (auto const& one : files) {
        auto const said = model.open(one.index);
        BOOST_TEST(has(said, one.says), "expected '" << one.says << "', found '" << said << "'");
        BOOST_TEST(said.starts_with(model.folder.path(index_name)), said);
        BOOST_TEST(has(said, "expected "), said);
        BOOST_TEST(has(said, "found "), said);
    }
    BOOST_TEST(model.open(two_files) == "read");
}

BOOST_AUTO_TEST_CASE(a_shard_that_is_a_link_stays_in_its_directory) {
    sharded_model const model;
    temporary_folder const elsewhere;
    std::filesystem::rename(model.folder.path("2.safetensors"), elsewhere.path("blob"));
    std::filesystem::create_symlink(elsewhere.path("blob"), model.folder.path("2.safetensors"));
    auto const said = model.open(two_files);
    BOOST_TEST(has(said, "file '2.safetensors': expected a file in the same directory, found a link to"), said);
    std::filesystem::remove(model.folder.path("2.safetensors"));
    std::filesystem::create_symlink("2.safetensors", model.folder.path("2.safetensors"));
    BOOST_TEST(has(model.open(two_files), "file '2.safetensors': expected it next to the index, found none"));
    // A link within the directory is allowed.
    std::filesystem::remove(model.folder.path("2.safetensors"));
    std::filesystem::rename(elsewhere.path("blob"), model.folder.path("blob"));
    std::filesystem::create_symlink("blob", model.folder.path("2.safetensors"));
    BOOST_TEST(model.open(two_files) == "read");
}

BOOST_AUTO_TEST_CASE(all_problems_are_reported_at_once) {
    sharded_model const model;
    model.write("2.safetensors", {"a", "e"});
    static_cast<void>(model.folder.with("3.safetensors", "broken"));
    auto const said = model.open(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors","d":"3.safetensors",)"
                                 R"("f":"4.safetensors"}})");
    for (auto const* const part :
         {"6 problems", "tensor 'b': expected only tensors that the index lists",
          "tensor 'e': expected only tensors that the index lists",
          "tensor 'a': expected it in one file, found it in '1.safetensors' and in '2.safetensors'",
          "3.safetensors, byte 0: expected the length of the header of 8 bytes, found 6 bytes",
          "file '4.safetensors': expected it next to the index, found none",
          "tensor 'c': expected it in file '2.safetensors', found it nowhere"})
        BOOST_TEST(has(said, part), "expected '" << part << "', found '" << said << "'");
    // The message stays readable for any number of problems.
    std::string map;
    for (int i = 0; i < 1000; ++i) map += (map.empty() ? "\"t" : ",\"t") + std::to_string(i) + R"(":"../x")";
    auto const many = model.open(R"({"weight_map":{)" + map + "}}");
    BOOST_TEST(has(many, "1000 problems"));
    BOOST_TEST(has(many, "and 980 more"));
    BOOST_TEST(many.size() < 4000U);
}
