#include "calm/text/token_file.hpp"

#include <boost/test/unit_test.hpp>

#include <thread>

#include "calm/base/random.hpp"
#include "calm/text/token_file_writer.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

namespace {

using calm::entry_use;
using calm::token_file;
using calm::token_file_writer;
using calm::test::has;
using ids = std::vector<calm::token_id>;

constexpr auto nobody_waits = [] { BOOST_TEST(false, "there is nobody to wait for"); };

void write(std::string const& path, std::vector<ids> const& entries) {
    token_file_writer writer(path, nobody_waits);
    BOOST_TEST(!writer.is_late());
    for (auto const& one : entries) writer.add(one, entry_use::both);
    writer.commit({});
}

std::string fault(std::string const& path, calm::token_id vocabulary = 300) {
    std::string why;
    auto const opened = token_file::open(path, vocabulary, why);
    BOOST_TEST((opened == nullptr) == !why.empty());
    return why;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    calm::random_sequence random({.seed = 3});
    for (std::uint32_t const n : {0U, 1U, 2U, 3U, 100U, 3000U}) {
        std::vector<ids> entries;
        std::size_t tokens = 0;
        for (std::uint32_t i = 0; i < n; ++i) {
            entries.emplace_back(random.below(i == 7 ? 400'000 : 200));  // one is longer than a chunk
            for (auto& id : entries.back()) id = static_cast<calm::token_id>(random.below(300));
            tokens += entries.back().size();
        }
        write(path, entries);
        std::string why;
        auto const read = token_file::open(path, 300, why);
        BOOST_REQUIRE_MESSAGE(read, why);
        BOOST_TEST(read->entries() == n);
        BOOST_TEST(read->facts().tokens == tokens);
        BOOST_TEST(read->facts().documents == n);
        for (std::uint32_t i = 0; i < n; ++i) {
            auto const found = read->ids(i);
            BOOST_TEST(read->size(i) == entries[i].size());
            BOOST_TEST(std::equal(found.begin(), found.end(), entries[i].begin(), entries[i].end()));
        }
        BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    }
}

BOOST_AUTO_TEST_CASE(uses_are_kept) {
    calm::test::temporary_folder const folder;
    {
        token_file_writer writer(folder.path("a"), nobody_waits);
        writer.add(ids{1, 2, 3}, entry_use::evaluation);
        writer.add(ids{1}, entry_use::training);
        writer.add(ids{3}, entry_use::training);
        writer.add(ids{}, entry_use::both);
        BOOST_TEST(writer.documents() == 2U);
        writer.commit({});
    }
    std::string why;
    auto const read = token_file::open(folder.path("a"), 4, why);
    BOOST_REQUIRE(read);
    BOOST_TEST(read->facts().documents == 2U);
    std::vector<entry_use> uses;
    for (std::size_t i = 0; i < 4; ++i) uses.push_back(read->use(i));
    BOOST_TEST((uses == std::vector{entry_use::evaluation, entry_use::training, entry_use::training, entry_use::both}));
    BOOST_TEST(read->ids(2)[0] == 3);
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
    BOOST_TEST(has(fault(folder.with("b", whole + std::string(8, '\0'))), "its length does not match its header"));
    BOOST_TEST(has(fault(folder.with("b", "")), "it ends early"));
    BOOST_TEST(has(fault(folder.path("none")), "cannot be opened"));
    BOOST_TEST(has(fault(folder.path("")), "expected a file"));
    BOOST_TEST(has(fault(path, 5), "another vocabulary"));
    write(path, {{-1, 2}});
    BOOST_TEST(has(fault(path), "another vocabulary"));
}

BOOST_AUTO_TEST_CASE(headers_that_lie_are_refused) {
    calm::test::temporary_folder const folder;
    write(folder.path("a"), {{1, 2, 3}, {4, 5, 6, 7, 8}});
    auto const whole = folder.content("a");
    // With matching checksums, so that the checks after them are reached.
    auto const with = [&](auto const& change, std::string body) {
        calm::token_file_facts facts;
        std::memcpy(&facts, whole.data(), sizeof facts);
        change(facts);
        calm::portion_sum sum;
        sum.add(std::as_bytes(std::span(body)));
        facts.body = sum.value();
        facts.header = calm::detail::header_sum(facts);
        std::string header(sizeof facts, '\0');
        std::memcpy(header.data(), &facts, sizeof facts);
        return fault(folder.with("b", header + body));
    };
    auto const body = whole.substr(sizeof(calm::token_file_facts));
    auto const end = [&](std::size_t i, std::uint64_t value) {
        auto changed = body;
        std::memcpy(changed.data() + 32 + 8 * i, &value, 8);
        return changed;
    };
    auto const nothing = [](calm::token_file_facts&) {};
    BOOST_TEST(with(nothing, body) == "");
    BOOST_TEST(has(with([](auto& f) { f.tokens = ~std::uint64_t{0}; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.tokens = std::uint64_t{1} << 62; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.entries = ~std::uint64_t{0}; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.entries = (std::uint64_t{1} << 61) + 2; }, body), "length"));
    BOOST_TEST(has(with([](auto& f) { f.tokens = 7; }, body), "ends do not fit"));
    BOOST_TEST(has(with([](auto& f) { f.documents = 1; }, body), "ends do not fit"));
    BOOST_TEST(has(with([](auto& f) { f.bytes_of_token = 2; }, body), "another format"));
    BOOST_TEST(has(with([](auto& f) { f.byte_order = 0x04030201; }, body), "another format"));
    BOOST_TEST(has(with([](auto& f) { f.magic[12] = '3'; }, body), "another format"));
    BOOST_TEST(has(with(nothing, end(1, 7)), "ends do not fit"));
    BOOST_TEST(has(with(nothing, end(1, 1'000'000)), "ends do not fit"));
    BOOST_TEST(has(with(nothing, end(0, 9)), "out of order"));
    BOOST_TEST(has(with(nothing, end(0, std::uint64_t{3} << 62 | 3)), "out of order"));
}

BOOST_AUTO_TEST_CASE(without_a_commit_nothing_stays) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    write(path, {{1}});
    auto const before = folder.content("a");
    {
        token_file_writer writer(path, nobody_waits);
        writer.add(ids(1'000'000, 2), entry_use::both);
    }
    BOOST_TEST(folder.content("a") == before);
    BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    (void)folder.with("a.partial", "what a run left that was killed");
    write(path, {{2}, {3}});
    BOOST_TEST(fault(path) == "");
    BOOST_TEST(has(calm::test::sentence_of<calm::error>([&] { token_file_writer(folder.path("no/a"), nobody_waits); }),
                   "a.partial: cannot be created: No such file"));
}

BOOST_AUTO_TEST_CASE(a_second_writer_waits_and_is_late) {
    calm::test::temporary_folder const folder;
    auto const path = folder.path("a");
    for (bool const completed : {true, false}) {
        auto first = std::make_unique<token_file_writer>(path, nobody_waits);
        std::atomic<bool> waits = false;
        std::thread second([&] {
            token_file_writer writer(path, [&] { waits = true; });
            BOOST_TEST(writer.is_late());
            BOOST_TEST(std::filesystem::exists(path) == completed);
        });
        while (!waits) std::this_thread::yield();
        first->add(ids{1, 2}, entry_use::both);
        if (completed) first->commit({});
        first.reset();
        second.join();
        BOOST_TEST((fault(path) == "") == completed);
        BOOST_TEST(!std::filesystem::exists(path + ".partial"));
        std::filesystem::remove(path);
    }
}
