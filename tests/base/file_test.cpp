#include "calm/base/detail/file.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/stat.h>

#include <string>

#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using calm::test::sentence_of;

BOOST_AUTO_TEST_CASE(an_existing_file_is_mapped) {
    calm::test::temporary_folder const folder;
    auto file = calm::mapped_file::open(folder.with("some", "content"));
    BOOST_TEST(file.text() == "content");
    auto moved = std::move(file);
    BOOST_TEST(moved.text() == "content");
    BOOST_TEST(moved.bytes().size() == 7U);
    BOOST_TEST(moved.path() == folder.path("some"));
    BOOST_TEST(calm::mapped_file::open(folder.with("empty", "")).text().empty());
}

BOOST_AUTO_TEST_CASE(the_reason_why_a_file_cannot_be_opened_is_reported) {
    calm::test::temporary_folder const folder;
    auto const absent = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path("absent")); });
    BOOST_TEST(absent == folder.path("absent") + ": cannot be opened: No such file or directory");
    auto const itself = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path(".")); });
    BOOST_TEST(itself.ends_with("expected a file, found a folder"), itself);
    BOOST_REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);  // a pipe without a writer
    auto const pipe = sentence_of<calm::error>([&] { (void)calm::mapped_file::open(folder.path("pipe")); });
    BOOST_TEST(pipe.ends_with("expected a file, found a pipe"), pipe);
    auto const device = sentence_of<calm::error>([&] { (void)calm::mapped_file::open("/dev/zero"); });
    BOOST_TEST(device == "/dev/zero: expected a file, found a device");
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

BOOST_AUTO_TEST_CASE(files_written_by_others_are_put_in_place) {
    calm::test::temporary_folder const folder;
    auto const place = folder.with("place", "old");
    calm::put_in_place(folder.with("part", "new"), place);
    BOOST_TEST(folder.content("place") == "new");
    BOOST_TEST((calm::is_there(place) && !calm::is_there(folder.path("part"))));
    auto const absent = sentence_of<calm::error>([&] { calm::put_in_place(folder.path("part"), place); });
    BOOST_TEST(absent == folder.path("part") + ": cannot be opened: No such file or directory");
    BOOST_TEST(folder.content("place") == "new");
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

BOOST_AUTO_TEST_CASE(failing_storage_is_an_error) {
    calm::test::temporary_folder const folder;
    auto const nowhere = sentence_of<calm::error>([&] { calm::replaced_file file(folder.path("no/such/file")); });
    BOOST_TEST(nowhere.find("cannot be created: No such file or directory") != std::string::npos);
    std::filesystem::create_directories(folder.path("taken/inside"));
    auto const taken = sentence_of<calm::error>([&] { calm::replaced_file file(folder.path("taken")); });
    BOOST_TEST(taken.ends_with("expected a file, found a folder"), taken);
    auto const device = sentence_of<calm::error>([&] { calm::replaced_file file("/dev/null"); });
    BOOST_TEST(device == "/dev/null: expected a file, found a device");
    auto const there =
        sentence_of<calm::error>([&] { calm::replaced_file file(folder.with("there", "x"), calm::if_exists::refuse); });
    BOOST_TEST(there.find("expected a path that does not exist yet") != std::string::npos);
    auto const meanwhile = sentence_of<calm::error>([&] {
        calm::replaced_file file(folder.path("new"), calm::if_exists::refuse);
        (void)folder.with("new", "of another");
        file.commit();
    });
    BOOST_TEST(meanwhile.find("expected a path that does not exist yet") != std::string::npos);
    BOOST_TEST(folder.content("new") == "of another");
}

// A symbolic link at the target path or at the partial file is replaced; the file it points to is unchanged.
BOOST_AUTO_TEST_CASE(nothing_is_written_through_a_link) {
    calm::test::temporary_folder const folder;
    auto const kept = folder.with("kept", "kept");
    for (auto const* const name : {"file", "file.partial"}) std::filesystem::create_symlink(kept, folder.path(name));
    calm::replace_file(folder.path("file"), "new");
    BOOST_TEST(folder.content("kept") == "kept");
    BOOST_TEST(folder.content("file") == "new");
    BOOST_TEST(!std::filesystem::is_symlink(folder.path("file")));
    BOOST_TEST(!std::filesystem::exists(std::filesystem::symlink_status(folder.path("file.partial"))));
}

BOOST_AUTO_TEST_CASE(a_link_leads_outside_or_not) {
    calm::test::temporary_folder const folder;
    for (auto const* const name : {"in/deep", "inner"}) std::filesystem::create_directories(folder.path(name));
    (void)folder.with("in/deep/file", "x");
    (void)folder.with("inner/file", "x");
    auto const outside = [&](std::string const& target) {
        std::filesystem::remove(folder.path("in/link"));
        std::filesystem::create_symlink(target, folder.path("in/link"));
        return calm::detail::leads_outside(folder.path("in"), folder.path("in/link"));
    };
    BOOST_TEST(!outside("deep/file"));
    BOOST_TEST(!outside("../in/deep"));
    BOOST_TEST(!outside(folder.path("in/deep/file")));
    BOOST_TEST(!outside("nowhere"));
    BOOST_TEST(outside("../inner/file"));
    BOOST_TEST(outside(".."));
    BOOST_TEST(outside("/etc/passwd"));
    BOOST_TEST(!calm::detail::leads_outside("/", folder.path("in")));
}
