// Models of any patch size train, continue a prompt, and can be evaluated.

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "calm/evaluate/evaluate.hpp"
#include "calm/sample/generate.hpp"
#include "calm/text/build_corpus.hpp"
#include "calm/text/markov.hpp"
#include "calm/train/session.hpp"

using namespace calm;

namespace {

constexpr configuration<> small(index_t K) {
    return {.autoencoder = {.vocab_size = 64,
                            .patch_size = K,
                            .hidden_size = 32,
                            .intermediate_size = 32,
                            .num_encoder_layers = 2,
                            .num_decoder_layers = 2,
                            .latent_size = 4 * K},
            .hidden_size = 32,
            .intermediate_size = 32,
            .num_hidden_layers = 1,
            .num_attention_heads = 2,
            .num_key_value_heads = 2,
            .head = {.num_mlp_layers = 1, .noise_size = 8}};
}

// Types for Boost, which names a typed case by its type.
struct one_token {
    static constexpr configuration<> value = small(1);
};
struct two_tokens {
    static constexpr configuration<> value = small(2);
};
struct eight_tokens {
    static constexpr configuration<> value = small(8);
};
using patch_sizes = boost::mpl::list<one_token, two_tokens, eight_tokens>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(every_patch_size_trains_and_generates, Size, patch_sizes) {
    constexpr configuration<> C = Size::value;
    constexpr index_t K = C.autoencoder.patch_size;
    auto const words = tokenizer::of_symbols(markov_alphabet);
    auto const text = build_corpus(std::vector<std::string>{"markov:20000"}, words, {});
    context<> ctx(1, 1);

    auto ae = make_autoencoder<C>(ctx, words.vocabulary_size());
    text_blocks patches(text, K, K, 1, packing::unbroken);
    autoencoder_recipe first;
    first.steps = 40;
    first.learning_rate = 4e-3;
    first.warmup = 5;
    first.batch_tokens = 512;
    train_autoencoder(ctx, ae.model, patches, first);

    auto lm = make_calm<C>(ctx, ae.model);
    text_blocks blocks(text, K, 8 * K, 1, packing::unbroken);
    calm_recipe<energy_objective> second;
    second.steps = 150;
    second.learning_rate = 2e-3;
    second.warmup = 5;
    second.sequences = 8;
    second.block_tokens = 8 * K;
    second.objective = {.samples = 4, .targets = 4};

    // On unseen text the autoencoder beats guessing the most frequent token, and the language model improves in both
    // measures by more than chance.
    auto const heldout = build_corpus(std::vector<std::string>{"markov:8000"}, words, {.use = split::heldout});
    auto const unseen = evaluation_blocks(heldout, {packing::unbroken, static_cast<std::size_t>(K)}, 64);
    bigram_table const table(words.vocabulary_size(), text.document(0));
    auto const measured = [&] {
        evaluation_settings const settings{.block_tokens = 64, .samples = 4, .positions = 400};
        auto e = evaluate_model(ctx, lm.model, unseen, words.specials(), &table, settings, second.objective);
        BOOST_TEST(e.positions == 400);
        BOOST_TEST(e.patches == 400);
        return e;
    };
    auto const before = measured();
    train_calm(ctx, lm.model, blocks, second);
    auto const after = measured();
    double most_frequent = 0;
    for (token_id id = 0; id < words.vocabulary_size(); ++id)
        most_frequent = std::max(most_frequent, table.probability(id));
    double const chance = std::sqrt(most_frequent * (1 - most_frequent) / static_cast<double>(400 * K));
    BOOST_TEST(*after.token_accuracy > most_frequent + 5 * chance);
    BOOST_TEST(*after.head_loss < 0.8 * *before.head_loss);  // by 28 to 34 % with this seed
    BOOST_TEST((*after.brier)[0] > (*before.brier)[0] + 5 * ((*after.brier_se)[0] + (*before.brier_se)[0]));
    BOOST_TEST(to_json(after).find("\"positions\":400") != std::string::npos);

    // Symbols have no BOS, so the prompt is whole patches; generation stops at the exact symbol.
    std::vector<token_id> const prompt(static_cast<std::size_t>(K), 3);
    generation_settings how;
    how.max_tokens = 2 * K + 1;
    auto const made = generate(ctx, lm.model, prompt, words.specials(), how);
    BOOST_TEST(static_cast<index_t>(made.tokens.size()) == how.max_tokens);
    BOOST_TEST(words.decode(made.tokens).size() == made.tokens.size());
    if (K > 1) BOOST_CHECK_THROW(generate(ctx, lm.model, {prompt.data(), 1}, words.specials(), how), error);
}
