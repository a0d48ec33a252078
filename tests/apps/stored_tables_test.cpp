#include "stored_tables.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include "calm/io/describe_model.hpp"
#include "calm/io/open_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/model/flops.hpp"
#include "calm/model/owned_model.hpp"
#include "run/report.hpp"
#include "support/fixtures.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::apps;
using namespace calm::test;

namespace {

std::string told_of(char const* name) {
    return model_text(read_model_description(checkpoint("base", name)));
}

constexpr llama_sizes sizes{.hidden_size = 8,
                            .intermediate_size = 10,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2};
constexpr llama_sizes far{.hidden_size = 8,
                          .intermediate_size = 10,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 4,
                          .num_key_value_heads = 2,
                          .head_dim = 6,
                          .rope_theta = 500'000,
                          .rope_scaling = {.type = rope_type::linear, .factor = 2.5},
                          .rms_norm_eps = 1e-5};

template <autoregressive_configuration C> std::string told_of_autoregressive(calm_description const& ours) {
    temporary_folder const folder;
    owned_model<autoregressive_model<C>> own(1234, model_mode::inference);
    save_model(folder.path("model"), own.model, describe_model<C>(1234, ours));
    return model_text(read_model_description(folder.path("model")));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_table_has_one_line_per_tensor) {
    auto const weights = open_weights(checkpoint("base", "calm_bf16"));
    auto const text = tensor_table_text(weights);
    BOOST_TEST(std::count(text.begin(), text.end(), '\n') == static_cast<std::ptrdiff_t>(weights.tensors().size()) + 2);
    BOOST_TEST(has(text, "ae_model.encoder.embed_tokens.weight"));
    BOOST_TEST(has(text, "[97, 32]  BF16"));
    BOOST_TEST(has(text, " 6,208\n"));
    BOOST_TEST(has(text, "one safetensors file, 97 tensors of BF16, 162,688 parameters, 325.4 kB\n"));
}

BOOST_AUTO_TEST_CASE(every_layout_of_a_model_is_inspected_equally) {
    for (auto const* const name : {"calm", "calm_sharded", "calm_bin"}) {
        auto const text = told_of(name);
        for (auto const* const part :
             {"CALM with the head energy", "config.json says float32", "K, tokens per patch", "ae_model.encoder",
              "FLOPs per token, training (blocks of 2,048 tokens)", "FLOPs per token, generation", "trained on"})
            BOOST_TEST(has(text, part), "expected '" << part << "' in " << text);
        // A tensor stored under two names counts once.
        BOOST_TEST(has(text, "all                    97     162,688  650.8 kB  100.0 %"), text);
    }
    BOOST_TEST(has(told_of("calm_sharded"), "several safetensors files (3), 97 tensors of F32"));
    BOOST_TEST(has(told_of("calm_bin"), "one PyTorch archive, 142 tensors of F32"));
    auto const autoencoder = told_of("autoencoder");
    BOOST_TEST(has(autoencoder, "KL weight 0.001, at least 0.5 per dimension, dropout 0.15"));
    BOOST_TEST(has(autoencoder, "FLOPs per token, encoding"));
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_is_inspected) {
    calm_description ours;
    ours.data = data_description{"padded", 256, 3, "6:5", {"stories:1000"}, {}};
    auto const text = told_of_autoregressive<autoregressive_configuration{far}>(ours);
    for (auto const* const part : {"autoregressive model\n",
                                   "one safetensors file, 21 tensors of F32; config.json says float32",
                                   "V, vocabulary              ",
                                   " 1,234\n",
                                   "D, hidden ",
                                   "intermediate ",
                                   "layers ",
                                   "heads ",
                                   "heads of keys and values ",
                                   "output projection ",
                                   " its own\n",
                                   "base of the rotary angles ",
                                   " 500000\n",
                                   "elements per head ",
                                   " linear, factor 2.5\n",
                                   "rms_norm_eps ",
                                   " 1e-05\n",
                                   "FLOPs per token, training (blocks of 256 tokens)",
                                   "FLOPs per token, generation (after 128 tokens)",
                                   "stories:1000",
                                   "held out",
                                   "model.embed_tokens",
                                   "model.layers",
                                   "model.norm",
                                   "lm_head"})
        BOOST_TEST(has(text, part), "expected '" << part << "' in " << text);
    for (double const flops :
         {flops::train_autoregressive(far, 1234, 256), flops::generate_autoregressive(far, 1234, 128)})
        BOOST_TEST(has(text, formatted("  %.2e", flops)), text);
    for (auto const* const part : {"backbone", "patch", "head:", "posterior", "latent"})
        BOOST_TEST(!has(text, part), part << " in " << text);

    auto const tied = told_of_autoregressive<autoregressive_configuration{sizes, true}>({});
    BOOST_TEST(has(tied, "tied: the table of embeddings\n"), tied);
    BOOST_TEST(has(tied, "FLOPs per token, training (blocks of 2,048 tokens)"), tied);
    BOOST_TEST(!has(tied, "lm_head"), tied);
    BOOST_TEST(!has(tied, "rotary"), tied);
}
