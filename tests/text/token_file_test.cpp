#include "calm/text/detail/token_file.hpp"

#include <boost/test/unit_test.hpp>

#include "calm/base/random.hpp"
#include "calm/text/detail/token_file_writer.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::token_file;
using calm::detail::token_file_writer;
using calm::test::has;
using ids = std::vector<calm::token_id>;

std::string const digest(64, 'd');

void add(token_file_writer& writer, ids const& one) {
    for (calm::token_id const id : one) writer.open().push_back(id);
    BOOST_TEST(writer.close() == one.size());
}
void write(std::string const& path, std::vector<ids> const& documents) {
    token_file_writer writer(path);
    for (auto const& one : documents) add(writer, one);
    writer.commit(digest);
}

std::string fault(std::string const& path, calm::token_id vocabulary = 300) {
    std::string why;
    auto const opened = token_file::open(path, vocabulary, why);
    BOOST_TEST((opened == nullptr) == !why.empty());
    return why;
}

}  // namespace

BOOST_AUTO_TEST_CASE(written_data_is_read_back) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    calm::random_sequence random({.seed = 3});
    for (std::uint32_t const n : {0U, 1U, 2U, 3U, 100U, 3000U}) {
        std::vector<ids> documents;
        std::size_t tokens = 0;
        for (std::uint32_t i = 0; i < n; ++i) {
            documents.emplace_back(
                random.below(i == 7 ? 400'000 : 200));  // one is longer than what is written at a time
            for (auto& id : documents.back()) id = static_cast<calm::token_id>(random.below(300));
            tokens += documents.back().size();
        }
        write(path, documents);
        std::string why;
        auto const read = token_file::open(path, 300, why);
        BOOST_REQUIRE_MESSAGE(read, why);
        BOOST_TEST(read->documents() == n);
        BOOST_TEST(read->facts().tokens == tokens);
        BOOST_TEST((std::string(read->facts().digest.data(), 64) == digest));
        for (std::uint32_t i = 0; i < n; ++i) {
            auto const found = read->ids(i);
            BOOST_TEST(read->size(i) == documents[i].size());
            BOOST_TEST(std::equal(found.begin(), found.end(), documents[i].begin(), documents[i].end()));
        }
        BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    }
}

BOOST_AUTO_TEST_CASE(every_damaged_byte_and_every_length_is_noticed) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    write(path, {{1, 2, 3}, {}, {4, 5}});
    auto const whole = folder.content("a");
    BOOST_TEST(fault(path) == "");
    for (std::size_t at = 0; at < whole.size(); ++at) {
        auto bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
        BOOST_TEST(fault(folder.with("b", bytes)) != "", "byte " << at);
    }
    for (std::size_t size = 0; size < whole.size(); ++size)
        BOOST_TEST(fault(folder.with("b", whole.substr(0, size))) != "", "size " << size);
    BOOST_TEST(has(fault(folder.with("b", std::string(8, '\0') + whole)), "its length does not match its facts"));
    BOOST_TEST(has(fault(folder.with("b", whole + std::string(8, '\0'))), "another format"));
    BOOST_TEST(has(fault(folder.with("b", "")), "it ends early"));
    BOOST_TEST(has(fault(folder.path("none")), "cannot be opened"));
    BOOST_TEST(has(fault(folder.path("")), "expected a file"));
    BOOST_TEST(has(fault(path, 5), "another vocabulary"));
    write(path, {{-1, 2}});
    BOOST_TEST(has(fault(path), "another vocabulary"));
}

BOOST_AUTO_TEST_CASE(facts_that_lie_are_refused) {
    calm::test::temporary_folder const folder;
    write(folder.path("a"), {{1, 2, 3}, {4, 5, 6, 7, 8}});
    auto const whole = folder.content("a");
    auto const body = whole.substr(0, whole.size() - sizeof(calm::token_file_facts));
    // With matching checksums, so that the checks after them are reached.
    auto const with = [&](auto const& change, std::string const& bytes) {
        calm::token_file_facts facts;
        std::memcpy(&facts, whole.data() + body.size(), sizeof facts);
        change(facts);
        calm::checksum sum;
        sum.add(std::as_bytes(std::span(bytes)));
        facts.body = sum.value();
        facts.own = calm::detail::own_sum(facts);
        std::string end(sizeof facts, '\0');
        std::memcpy(end.data(), &facts, sizeof facts);
        return fault(folder.with("b", bytes + end));
    };
    auto const end = [&](std::size_t i, std::uint64_t value) {
        auto changed = body;
        std::memcpy(changed.data() + 32 + 8 * i, &value, 8);
        return changed;
    };
    auto const nothing = [](calm::token_file_facts&) {};
    BOOST_TEST(with(nothing, body) == "");
    BOOST_TEST(has(with([](auto& f) { f.tokens = ~std::uint64_t{0}; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.tokens = std::uint64_t{1} << 62; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.documents = ~std::uint64_t{0}; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.documents = (std::uint64_t{1} << 61) + 2; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.documents = 1; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.tokens = 7; }, body), "ends do not fit"));
    BOOST_TEST(has(with([](auto& f) { f.bytes_of_token = 2; }, body), "another format"));
    BOOST_TEST(has(with([](auto& f) { f.byte_order = 0x04030201; }, body), "another format"));
    BOOST_TEST(has(with([](auto& f) { f.magic[12] = '2'; }, body), "another format"));
    BOOST_TEST(has(with(nothing, end(1, 7)), "ends do not fit"));
    BOOST_TEST(has(with(nothing, end(1, 1'000'000)), "ends do not fit"));
    BOOST_TEST(has(with(nothing, end(0, 9)), "out of order"));
}

BOOST_AUTO_TEST_CASE(without_a_commit_nothing_changes) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    write(path, {{1}});
    auto const before = folder.content("a");
    {
        token_file_writer writer(path);
        add(writer, ids(1'000'000, 2));
    }
    BOOST_TEST(folder.content("a") == before);
    BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    (void)folder.with("a.partial", "what a run left that was killed");
    write(path, {{2}, {3}});
    BOOST_TEST(fault(path) == "");
    BOOST_TEST(has(calm::test::sentence_of<calm::error>([&] { token_file_writer(folder.path("no/a")); }),
                   "a.partial: cannot be created: No such file"));
}
