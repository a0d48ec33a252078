// A CALM in the layout of the published models whose autoencoder is elsewhere.
#include "calm/io/read_model_description.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>
#include <string>

#include "calm/io/convert_model.hpp"
#include "support/calm_without_autoencoder.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

BOOST_AUTO_TEST_CASE(the_autoencoder_of_a_published_model_may_be_anywhere) {
    temporary_folder const folder;
    auto const whole = checkpoint("base", "calm"), ae = checkpoint("base", "autoencoder");
    auto const part = folder.path("CALM-M");
    write_without_autoencoder(whole, part, "/home/someone/checkpoints/autoencoder");
    BOOST_TEST(has(sentence_of<error>([&] { static_cast<void>(read_model_description(part)); }), "key 'ae_path'"));

    // Conversion makes one directory of both, with every tensor of the model that was whole.
    convert_model(read_model_description(part, ae), folder.path("one"));
    auto const made = read_model_description(folder.path("one")), wanted = read_model_description(whole);
    BOOST_TEST((made.sizes == wanted.sizes));
    BOOST_TEST(made.description.ae_path.empty());
    BOOST_TEST_REQUIRE(tensors_of(made).size() == tensors_of(wanted).size());
    for (auto const& tensor : tensors_of(wanted)) {
        auto const& same = made.weights->at(tensor.name);
        BOOST_TEST((same.shape == tensor.shape && std::ranges::equal(same.bytes, tensor.bytes)), tensor.name);
    }
}

BOOST_AUTO_TEST_CASE(directories_that_do_not_belong_together_are_refused) {
    temporary_folder const folder;
    auto const whole = checkpoint("base", "calm"), ae = checkpoint("base", "autoencoder");
    auto const part = folder.path("part");
    write_without_autoencoder(whole, part, "");
    auto const refused = [](std::string const& model, std::string const& autoencoder, std::string const& why) {
        auto const said = sentence_of<error>([&] { static_cast<void>(read_model_description(model, autoencoder)); });
        BOOST_TEST(has(said, why), said);
    };
    refused(whole, ae, "expected no tensors 'ae_model.*', found them: the CALM contains its autoencoder; leave '");
    refused(part, whole, "expected the directory of an autoencoder, found the directory of a CALM");
    refused(ae, ae, "expected the directory of a CALM, found the directory of an autoencoder");
    refused(part, checkpoint("two", "autoencoder"), " does not match it: ");
    refused(part, folder.path("none"), "no such directory");
}
