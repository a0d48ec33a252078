#include "calm/text/detail/mapped_pages.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "support/memory_of_process.hpp"
#include "support/temporary_folder.hpp"

namespace {

struct mapping {
    explicit mapping(std::string const& path) : file(calm::mapped_file::open(path)) {}
    // Reads one byte of each page.
    std::size_t read() {
        std::size_t sum = 0;
        pages.touch(file.bytes().size());
        for (std::size_t at = 0; at < file.bytes().size(); at += 4096)
            sum += static_cast<unsigned char>(file.bytes()[at]);
        return sum;
    }
    calm::mapped_file file;
    calm::detail::mapped_pages pages{file.bytes()};
};

}  // namespace

BOOST_AUTO_TEST_CASE(many_mappings_together_hold_no_more_than_one) {
    calm::test::temporary_folder const folder;
    std::size_t constexpr size = std::size_t{4} << 20;
    auto const path = folder.with("a", std::string(size, '\x01'));
    std::vector<std::unique_ptr<mapping>> all;
    for (int i = 0; i < 60; ++i) all.push_back(std::make_unique<mapping>(path));
    auto const before = calm::test::resident_of_files();
    std::size_t most = 0;
    for (int round = 0; round < 3; ++round)
        for (auto const& one : all) {
            BOOST_TEST(one->read() == size / 4096);  // dropped pages come back
            most = std::max(most, calm::test::resident_of_files() - std::min(before, calm::test::resident_of_files()));
        }
    BOOST_TEST(most > calm::detail::mapped_pages::most / 2);  // the measurement works
    BOOST_TEST(most <= calm::detail::mapped_pages::most + 4 * size);
    for (std::size_t i = 0; i < all.size(); i += 2) all[i].reset();  // closed mappings are forgotten
    for (std::size_t i = 1; i < all.size(); i += 2) BOOST_TEST(all[i]->read() == size / 4096);
    all.clear();
    mapping last(path);
    for (int i = 0; i < 40; ++i) BOOST_TEST(last.read() == size / 4096);
    last.pages.let_go();
    BOOST_TEST(calm::test::resident_of_files() < before + size);
}

// Touching one page may load a whole group of pages that the system manages together.
BOOST_AUTO_TEST_CASE(single_pages_of_a_large_file_hold_no_more) {
    calm::test::temporary_folder const folder;
    std::size_t constexpr size = std::size_t{256} << 20;
    auto const path = folder.path("a");
    {
        std::ofstream out(path, std::ios::binary);
        std::string const part(std::size_t{4} << 20, '\x01');
        for (std::size_t at = 0; at < size; at += part.size()) out << part;
    }
    mapping one(path);
    auto const before = calm::test::resident_of_files();
    std::size_t most = 0, sum = 0;
    for (std::size_t i = 0; i < 4000; ++i) {
        one.pages.touch(1);
        sum += static_cast<unsigned char>(one.file.bytes()[i * 7919 * 4096 % size]);
        auto const now = calm::test::resident_of_files();
        most = std::max(most, now - std::min(before, now));
    }
    BOOST_TEST(sum == 4000U);
    BOOST_TEST(most <= calm::detail::mapped_pages::most + (std::size_t{4} << 20));
}
