#include "calm/io/file.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include <string>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using calm::test::sentence_of;

BOOST_AUTO_TEST_CASE(maps_what_is_there) {
    calm::test::temporary_folder const folder;
    auto file = calm::mapped_file::open(folder.with("some", "content"));
    BOOST_TEST(file.text() == "content");
    auto moved = std::move(file);
    BOOST_TEST(moved.text() == "content");
    BOOST_TEST(moved.bytes().size() == 7U);
    BOOST_TEST(moved.path() == folder.path("some"));
    BOOST_TEST(calm::mapped_file::open(folder.with("empty", "")).text().empty());
}

BOOST_AUTO_TEST_CASE(says_why_a_file_cannot_be_opened) {
    calm::test::temporary_folder const folder;
    auto const absent = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path("absent")); });
    BOOST_TEST(absent == folder.path("absent") + ": cannot be opened: No such file or directory");
    auto const itself = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path(".")); });
    BOOST_TEST(itself.find("expected a file, found a folder") != std::string::npos);
    BOOST_REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);  // nobody writes
    auto const pipe = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path("pipe")); });
    BOOST_TEST(pipe.find("expected a file, found a folder or a device") != std::string::npos);
    try {
        (void)calm::mapped_file::open(folder.path("absent"), calm::errc::model_file);
        BOOST_ERROR("nothing was thrown");
    } catch (calm::error const& thrown) {
        BOOST_TEST((thrown.code() == calm::errc::model_file));
    }
}

BOOST_AUTO_TEST_CASE(a_file_is_replaced_whole_or_not_at_all) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("file", "old");
    {
        calm::replaced_file file(path);
        file.write("half of the n");
        BOOST_TEST(folder.content("file") == "old");
        BOOST_TEST(std::filesystem::exists(path + ".partial"));
    }
    BOOST_TEST(folder.content("file") == "old");
    BOOST_TEST(!std::filesystem::exists(path + ".partial"));
    {
        calm::replaced_file file(path);
        file.write("ne");
        file.write("w");
        BOOST_TEST(folder.content("file") == "old");
        file.commit();
        BOOST_TEST(folder.content("file") == "new");
    }
    BOOST_TEST(folder.content("file") == "new");
    BOOST_TEST(!std::filesystem::exists(path + ".partial"));
}

BOOST_AUTO_TEST_CASE(a_mapping_outlives_the_replacement_of_its_file) {
    calm::test::temporary_folder const folder;
    auto const path = folder.with("file", "old");
    auto const before = calm::mapped_file::open(path);
    calm::replaced_file file(path);
    file.write("new and longer");
    file.commit();
    BOOST_TEST(before.text() == "old");
    BOOST_TEST(calm::mapped_file::open(path).text() == "new and longer");
}

BOOST_AUTO_TEST_CASE(failing_storage_is_a_sentence) {
    calm::test::temporary_folder const folder;
    auto const nowhere = sentence_of<calm::error>([&] { calm::replaced_file file(folder.path("no/such/file")); });
    BOOST_TEST(nowhere.find("cannot be created: No such file or directory") != std::string::npos);
    std::filesystem::create_directories(folder.path("taken/inside"));
    auto const taken = sentence_of<calm::error>([&] {
        calm::replaced_file file(folder.path("taken"));
        file.write("x");
        file.commit();
    });
    BOOST_TEST(taken.find("cannot be replaced by") != std::string::npos);
    BOOST_TEST(!std::filesystem::exists(folder.path("taken.partial")));
    if (std::filesystem::exists("/dev/full")) {  // a device on which no byte fits
        auto const full = sentence_of<calm::error>([&] {
            std::filesystem::create_symlink("/dev/full", folder.path("file.partial"));
            calm::replaced_file file(folder.path("file"));
        });
        BOOST_TEST(full.find("cannot be created") != std::string::npos);  // a link is not followed
    }
}
