#include "stored_tables.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "support/fixtures.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

std::string told_of(char const* name) {
    return model_text(read_model_description(checkpoint("base", name)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_table_has_a_line_a_tensor, *with_fixtures) {
    auto const weights = stored_weights::open(checkpoint("base", "calm_bf16"));
    auto const text = tensor_table_text(weights);
    BOOST_TEST(std::count(text.begin(), text.end(), '\n') == static_cast<std::ptrdiff_t>(weights.tensors().size()) + 2);
    BOOST_TEST(has(text, "ae_model.encoder.embed_tokens.weight"));
    BOOST_TEST(has(text, "[97, 32]  BF16"));
    BOOST_TEST(has(text, " 6,208\n"));
    BOOST_TEST(has(text, "one safetensors file, 97 tensors of BF16, 162,688 parameters, 325.4 kB\n"));
}

BOOST_AUTO_TEST_CASE(a_model_is_told_the_same_from_every_layout, *with_fixtures) {
    for (auto const* const name : {"calm", "calm_sharded", "calm_bin"}) {
        auto const text = told_of(name);
        for (auto const* const part :
             {"CALM with the head energy", "config.json says float32", "K, tokens a patch", "ae_model.encoder",
              "FLOPs a token, training (blocks of 2,048 tokens)", "FLOPs a token, generation", "trained on"})
            BOOST_TEST(has(text, part), "expected '" << part << "' in " << text);
        // Second names count once.
        BOOST_TEST(has(text, "all                    97     162,688  650.8 kB  100.0 %"), text);
    }
    BOOST_TEST(has(told_of("calm_sharded"), "several safetensors files (3), 97 tensors of F32"));
    BOOST_TEST(has(told_of("calm_bin"), "one PyTorch archive, 142 tensors of F32"));
    auto const autoencoder = told_of("autoencoder");
    BOOST_TEST(has(autoencoder, "weight of the divergence 0.001, at least 0.5 a dimension, dropout 0.15"));
    BOOST_TEST(has(autoencoder, "FLOPs a token, encoding"));
}
