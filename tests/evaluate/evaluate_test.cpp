#include "calm/evaluate/evaluate.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

#include "support/models.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using model_type = calm_model<base>;
constexpr index_t K = model_type::K;
constexpr index_t P = 6;
constexpr index_t V = 97;
constexpr special_tokens special{94, 95, 96};
constexpr auto block_size = static_cast<std::size_t>(P * K);

template <model_configuration auto C = base> struct random_model {
    arena<> values{"values"};
    calm_model<C> model;
    explicit random_model(index_t vocabulary = V, float width = 0.3F) : model(vocabulary) {
        allocate(model, values, static_cast<arena<>*>(nullptr));
        allocate(model.ae_model, values, static_cast<arena<>*>(nullptr));
        std::uint64_t first = 0;
        auto const draw = [&](std::string const&, auto& p) {
            normals(p.value.data(), p.value.size(), key{7, stream::initialise, 0}, first);
            first += static_cast<std::uint64_t>(p.value.size());
            for (index_t i = 0; i < p.value.size(); ++i)
                p.value[i] = p.decays                 ? p.value[i] * width
                             : p.starts == role::gain ? 1 + p.value[i] * 0.1F
                                                      : p.value[i] * 0.1F;
        };
        model.visit(draw);
        model.visit_autoencoder(draw);
    }
};

// Only ordinary tokens.
std::vector<token_id> random_blocks(index_t blocks, std::uint64_t seed = 5, std::uint32_t among = 94) {
    random_sequence random({seed, stream::story, 0});
    std::vector<token_id> tokens(static_cast<std::size_t>(blocks) * block_size);
    for (auto& id : tokens) id = static_cast<token_id>(random.below(among));
    return tokens;
}

evaluation_settings const settings{.block_tokens = P * K, .samples = 4, .seed = 9};

// Makes noise irrelevant: zeroes the first layer that reads it.
void make_deterministic(model_type& model) {
    auto const clear = [&](std::string const& name, auto& p) {
        if (name == "mlp_generator.noise_embd.weight") std::fill_n(p.value.data(), p.value.size(), 0.0F);
    };
    model.visit(clear);
}

// The patches predicted after the first P - 1 of each block, with the noise of evaluation.
std::vector<token_id> predictions(context<>& ctx, model_type& model, std::vector<token_id> const& blocks,
                                  index_t samples) {
    auto const n = static_cast<index_t>(blocks.size());
    auto const t = shift_tokens(ctx, as_vector(blocks), P, K);
    auto const hidden = model.transformer.forward(ctx, t.inputs, P - 1).y;
    std::vector<token_id> drawn(static_cast<std::size_t>(n / (P * K) * (P - 1) * samples * K));
    std::vector<row_rng> rngs;
    for (index_t r = 0; r < hidden.extent(0); ++r)
        rngs.push_back({{settings.seed, stream::evaluation, 0}, r * samples});
    model.sample_patches(ctx, {drawn.data(), extents<dyn>(static_cast<index_t>(drawn.size()))}, hidden, samples, rngs);
    return drawn;
}

// The chosen positions of every block.
std::vector<std::vector<index_t>> chosen_positions(std::span<token_id const> blocks, evaluation_settings const& s) {
    std::vector<std::vector<index_t>> all;
    auto const source = blocks_in(blocks, block_size);
    detail::chosen_parts chosen(source, s, K, special);
    source([&](std::span<token_id const> block) { all.push_back(chosen.positions(block)); });
    return all;
}

template <class Call> int code_of(Call&& call) {
    try {
        call();
    } catch (error const& e) {
        return static_cast<int>(e.code());
    }
    return 0;
}

}  // namespace

// The same documents for K 4 and, without PAD, for K 1: a position is scored where a document continues.
BOOST_AUTO_TEST_CASE(positions_within_documents_are_scored) {
    auto const [bos, eos, pad, always] = special;
    std::vector<token_id> const padded{bos, 1, 2, 3, 4, 5, eos, pad, pad, bos, 6, eos, bos, 8, 9, 10, 11, 12, 13, eos};
    std::vector<token_id> const dense{bos, 1, 2, 3, 4, 5, eos, bos, 6, eos, bos, 8, 9, 10};
    index_t skipped = 0;
    using positions = std::vector<index_t>;
    // After 3 and 10, not after PAD and EOS.
    BOOST_TEST((detail::scorable(padded, 4, special, skipped) == positions{0, 3}));
    BOOST_TEST(skipped == 2);
    // After BOS 1 2 3 4 5, BOS and 6; the targets of later positions run past the block.
    BOOST_TEST((detail::scorable(dense, 1, special, skipped) == positions{0, 1, 2, 3, 4, 5, 7, 8}));
    BOOST_TEST(skipped == 2 + 2);
}

BOOST_AUTO_TEST_CASE(positions_between_documents_are_left_out_and_counted) {
    random_model r;
    context<> ctx(1, 2);
    auto blocks = random_blocks(3);
    auto const clean = evaluate_model(ctx, r.model, blocks, special, nullptr, settings);
    BOOST_TEST(clean.positions == 3 * (P - 1));
    BOOST_TEST(clean.skipped == 0);
    BOOST_TEST(clean.sequences == 3);
    BOOST_TEST(clean.block == P * K);
    blocks[K] = special.pad;                       // in a target
    blocks[K - 1] = special.eos;                   // before the second patch
    blocks[3 * K - 1] = special.pad;               // before the fourth
    blocks[block_size + 5 * K - 1] = special.pad;  // before the last patch of the second block
    blocks[block_size + 6 * K - 1] = special.pad;  // at its end, before nothing
    auto const e = evaluate_model(ctx, r.model, blocks, special, nullptr, settings);
    BOOST_TEST(e.positions == 3 * (P - 1) - 3);
    BOOST_TEST(e.skipped == 3);
    BOOST_TEST(e.sequences == 3);
    // A block of PAD alone is not a sequence.
    std::fill_n(blocks.begin() + 2 * block_size, block_size, special.pad);
    auto const fewer = evaluate_model(ctx, r.model, blocks, special, nullptr, settings);
    BOOST_TEST(fewer.sequences == 2);
    BOOST_TEST(fewer.skipped == 3 + P - 1);
    // One sequence has no error.
    BOOST_TEST(!evaluate_model(ctx, r.model, random_blocks(1), special, nullptr, settings).brier_lm_se);
    BOOST_TEST(code_of([&] {
                   std::vector<token_id> const pads(block_size, special.pad);
                   evaluate_model(ctx, r.model, pads, special, nullptr, settings);
               }) == static_cast<int>(errc::data));
}

BOOST_AUTO_TEST_CASE(the_score_matches_the_samples) {
    random_model r;
    context<> ctx(1, 2);
    auto const blocks = random_blocks(2, 5, 3);  // few tokens, so that some are hit
    auto const e = evaluate_model(ctx, r.model, blocks, special, nullptr, settings);
    auto const drawn = predictions(ctx, r.model, blocks, settings.samples);
    brier_sequence sum;
    std::span<token_id const> rest = drawn;
    for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t p = 1; p < P; ++p, rest = rest.subspan(16))
            sum.add(brier_position(rest.first(16), std::span(blocks).subspan(b * block_size + p * K, K)));
    for (std::size_t n = 0; n < 4; ++n)
        BOOST_TEST((*e.brier)[n] == sum.sum[n] / static_cast<double>(sum.count), boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_subset_of_positions_is_scored_as_it_is_among_all) {
    random_model r;
    context<> ctx(1, 2);
    auto const blocks = random_blocks(20, 5, 3);
    auto some = settings;
    some.positions = 30;
    auto const chosen = chosen_positions(blocks, some);
    auto const drawn = predictions(ctx, r.model, blocks, settings.samples);
    brier_sequence sum;
    std::span<token_id const> rest = drawn;
    for (std::size_t b = 0; b < chosen.size(); ++b)
        for (std::size_t p = 1; p < P; ++p, rest = rest.subspan(16))
            if (std::count(chosen[b].begin(), chosen[b].end(), static_cast<index_t>(p) - 1) > 0)
                sum.add(brier_position(rest.first(16), std::span(blocks).subspan(b * block_size + p * K, K)));
    BOOST_TEST(sum.count == 30);
    auto const e = evaluate_model(ctx, r.model, blocks, special, nullptr, some);
    BOOST_TEST(e.positions == 30);
    for (std::size_t n = 0; n < 4; ++n)
        BOOST_TEST((*e.brier)[n] == sum.sum[n] / 30, boost::test_tools::tolerance(1e-12));
    // A subset of at least all positions equals the full evaluation.
    auto const all = to_json(evaluate_model(ctx, r.model, blocks, special, nullptr, settings));
    for (index_t const many : {100, 1000}) {
        some.positions = many;
        auto e_all = evaluate_model(ctx, r.model, blocks, special, nullptr, some);
        BOOST_TEST(e_all.positions == 100);
        BOOST_TEST(to_json(e_all) == all);
    }
}

BOOST_AUTO_TEST_CASE(every_position_is_as_likely_in_a_subset) {
    auto blocks = random_blocks(4);
    blocks[2 * K - 1] = special.pad;  // a position that does not count
    constexpr int rounds = 4000;
    std::vector<double> taken(4 * (P - 1), 0.0);
    auto some = settings;
    some.positions = 5;
    for (some.seed = 0; some.seed < rounds; ++some.seed) {
        auto const chosen = chosen_positions(blocks, some);
        std::size_t count = 0;
        for (std::size_t b = 0; b < 4; ++b) {
            BOOST_TEST(std::is_sorted(chosen[b].begin(), chosen[b].end()));
            for (auto const p : chosen[b]) taken[b * (P - 1) + static_cast<std::size_t>(p)] += 1;
            count += chosen[b].size();
        }
        BOOST_TEST(count == 5u);
    }
    BOOST_TEST(taken[1] == 0.0);
    double const share = 5.0 / 19;
    for (std::size_t i = 0; i < taken.size(); ++i)
        if (i != 1) BOOST_TEST(std::abs(taken[i] / rounds - share) < 5 * std::sqrt(share * (1 - share) / rounds));
}

// All pairs of four items are equally likely; above 2^32 items the subset is spread from the first to the last.
BOOST_AUTO_TEST_CASE(every_subset_is_as_likely) {
    constexpr int rounds = 6000;
    std::array<double, 16> seen{};
    for (std::uint64_t seed = 0; seed < rounds; ++seed) {
        detail::random_subset subset({seed, stream::positions, 0}, 4, 2);
        unsigned set = 0;
        for (unsigned i = 0; i < 4; ++i) set |= subset.takes() ? 1U << i : 0U;
        seen[set] += 1;
    }
    double const expected = rounds / 6.0;
    double chi_square = 0, pairs = 0;
    for (unsigned const set : {3U, 5U, 6U, 9U, 10U, 12U}) {
        chi_square += (seen[set] - expected) * (seen[set] - expected) / expected;
        pairs += seen[set];
    }
    BOOST_TEST(pairs == rounds);
    BOOST_TEST(chi_square < 20.5);  // 5 degrees of freedom: 0.1 %

    constexpr std::uint64_t many = std::uint64_t{1} << 33;  // twice the 32-bit range
    detail::random_subset half({1, stream::positions, 0}, many, many / 2);
    int taken = 0;
    for (int i = 0; i < 10'000; ++i) taken += half.takes();
    BOOST_TEST(std::abs(taken - 5000) < 200);  // 4 standard deviations
}

// Only the blocks that contain chosen positions are computed.
BOOST_AUTO_TEST_CASE(work_follows_the_positions_and_not_the_text) {
    random_model r;
    context<> ctx(1, 2);
    auto const blocks = random_blocks(200, 5, 3);
    auto some = settings;
    some.positions = 7;
    std::size_t passes = 0;
    block_source const counted = [&](block_visitor const& visitor) {
        ++passes;
        blocks_in(blocks, block_size)(visitor);
    };
    auto const e = evaluate_model(ctx, r.model, counted, special, nullptr, some);
    BOOST_TEST(passes == 2U);  // to count, and to score
    BOOST_TEST(e.positions == 7);
    BOOST_TEST(e.patches == 7);
    BOOST_TEST(e.sequences <= 7);
    BOOST_TEST(*e.draws_per_patch == 1.0);
    auto const alone = evaluate_model(ctx, r.model.ae_model, counted, special, some);
    BOOST_TEST(alone.patches == 7);
    BOOST_TEST(*alone.token_accuracy_posterior == *e.token_accuracy_posterior);
    passes = 0;
    BOOST_TEST(evaluate_model(ctx, r.model.ae_model, counted, special, settings).patches == 200 * P);
    BOOST_TEST(passes == 1U);
}

// Patch by patch: a patch has the same noise in a subset as among all.
BOOST_AUTO_TEST_CASE(a_subset_of_patches_is_scored_as_it_is_among_all) {
    random_model r;
    context<> ctx(1, 2);
    auto const blocks = random_blocks(10);
    auto some = settings;
    some.positions = 9;
    auto const e = evaluate_model(ctx, r.model.ae_model, blocks, special, some);
    auto const source = blocks_in(blocks, block_size);
    detail::chosen_parts chosen(source, some, K, special);
    constexpr auto k = static_cast<std::size_t>(K);
    double right = 0;
    index_t taken = 0;
    for (std::size_t p = 0; p < blocks.size() / k; ++p) {
        if (!chosen.takes_patch()) continue;
        autoencoder_scoring one(ctx, r.model.ae_model, special.pad, some.seed);
        one.add(static_cast<index_t>(p), std::span(blocks).subspan(p * k, k));
        right += one.result().token_accuracy_posterior / 9;
        ++taken;
    }
    BOOST_TEST(taken == 9);
    BOOST_TEST(*e.token_accuracy_posterior == right, boost::test_tools::tolerance(1e-12));
    auto const all = evaluate_model(ctx, r.model.ae_model, blocks, special, settings);
    BOOST_TEST(*e.posterior_std != *all.posterior_std);
}

// With a small vocabulary, and with one large enough for token_screen.
BOOST_AUTO_TEST_CASE(a_model_without_noise_that_is_right_has_brier_lm_100) {
    constexpr special_tokens nothing{-1, -1, -1};
    for (index_t const vocabulary : {V, index_t{8192}}) {
        random_model r(vocabulary);
        make_deterministic(r.model);
        context<> ctx(1, 2);
        // Each round replaces patches by the model's predictions; after P - 1 rounds all are replaced.
        auto blocks = random_blocks(2);
        for (index_t round = 1; round < P; ++round) {
            auto const next = predictions(ctx, r.model, blocks, 1);
            for (std::size_t b = 0; b < 2; ++b)
                std::copy_n(next.begin() + static_cast<std::ptrdiff_t>(b * (P - 1) * K), (P - 1) * K,
                            blocks.begin() + static_cast<std::ptrdiff_t>(b * block_size + K));
        }
        auto const e = evaluate_model(ctx, r.model, blocks, nothing, nullptr, settings);
        BOOST_TEST(*e.brier_lm == 100.0, boost::test_tools::tolerance(1e-9));
        BOOST_TEST(*e.brier_lm_se < 1e-9);
        // Certainly wrong answers score 2 * 0 - 1.
        for (std::size_t i = 0; i < blocks.size(); ++i)
            blocks[i] = i % block_size < K ? blocks[i] : (blocks[i] + 1) % 90;
        // (contexts change too, so only most of the predictions stay wrong)
        BOOST_TEST((*evaluate_model(ctx, r.model, blocks, nothing, nullptr, settings).brier)[3] < 0.0);
    }
}

BOOST_AUTO_TEST_CASE(results_depend_neither_on_the_batch_nor_on_threads_nor_on_the_run) {
    random_model r;
    auto const blocks = random_blocks(9, 5, 3);
    auto const result = [&](index_t batch, int threads, std::uint32_t step) {
        context<> ctx(77 + step, threads);
        ctx.step = step;
        auto s = settings;
        s.batch = batch;
        auto e = evaluate_model(ctx, r.model, blocks, special, nullptr, s, energy_objective{});
        BOOST_TEST(ctx.seed == 77 + step);
        BOOST_TEST(ctx.step == step);
        BOOST_TEST(ctx.saved.used() == 0u);
        BOOST_TEST(ctx.workspace.used() == 0u);
        return e;
    };
    auto const one = result(8, 1, 0);
    BOOST_TEST(to_json(result(8, 2, 3)) == to_json(one));
    auto const single = result(1, 2, 0);
    BOOST_TEST(*single.brier == *one.brier, boost::test_tools::per_element());
    BOOST_TEST(*single.head_loss == *one.head_loss, boost::test_tools::tolerance(1e-5));
    BOOST_TEST(*single.token_accuracy_posterior == *one.token_accuracy_posterior);
    auto other = settings;
    other.seed = 10;
    context<> ctx(1, 2);
    auto const e = evaluate_model(ctx, r.model, blocks, special, nullptr, other, energy_objective{});
    BOOST_TEST((*e.head_loss != *one.head_loss));
}

BOOST_AUTO_TEST_CASE(the_loss_of_the_head_matches_training_at_step_0) {
    random_model r;
    auto const blocks = random_blocks(3);
    energy_objective const objective{.samples = 5, .targets = 7, .beta = 1.25};
    context<> ctx(1, 2);
    auto const e = evaluate_model(ctx, r.model, blocks, special, nullptr, settings, objective);
    context<> as_training(settings.seed, 2);
    auto const t = shift_tokens(as_training, as_vector(blocks), P, K);
    auto const hidden = r.model.transformer.forward(as_training, t.inputs, P - 1).y;
    auto const labels = unique(as_training, t.labels, r.model.vocabulary());
    auto const want = r.model.loss_sum(as_training, hidden, labels, objective, 0) / (3 * (P - 1));
    BOOST_TEST(*e.head_loss == want, boost::test_tools::tolerance(1e-6));
    // head_loss depends on the objective and is missing without one.
    BOOST_TEST(!evaluate_model(ctx, r.model, blocks, special, nullptr, settings).head_loss);
}

BOOST_AUTO_TEST_CASE(references_are_scored_at_the_same_positions) {
    random_model r;
    context<> ctx(1, 2);
    auto blocks = random_blocks(2, 5, 3);
    blocks[3 * K - 1] = special.pad;
    bigram_table const table(V, random_blocks(40, 6, 3));
    auto const e = evaluate_model(ctx, r.model, blocks, special, &table, settings);
    brier_scores unigram{};
    brier_scores bigram{};
    for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t p = 1; p < P; ++p) {
            if (b == 0 && p == 3) continue;
            auto const at = b * block_size + p * K;
            auto const y = std::span<token_id const>(blocks).subspan(at).first<4>();
            for (std::size_t n = 0; n < 4; ++n) {
                unigram[n] += table.unigram_brier(y)[n] / 9;
                bigram[n] += table.bigram_brier(blocks[at - 1], y)[n] / 9;
            }
        }
    for (std::size_t n = 0; n < 4; ++n) {
        BOOST_TEST((*e.unigram_brier)[n] == unigram[n], boost::test_tools::tolerance(1e-12));
        BOOST_TEST((*e.bigram_brier)[n] == bigram[n], boost::test_tools::tolerance(1e-12));
    }
    BOOST_TEST(*e.bigram_brier_lm == brier_lm(bigram), boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(the_autoencoder_is_right_where_it_is_and_pad_does_not_count) {
    random_model r;
    context<> ctx(1, 2);
    auto& ae = r.model.ae_model;
    auto const tokens = random_blocks(1);
    std::vector<token_id> decoded(tokens.size());
    ae.decode_tokens(ctx, {decoded.data(), extents<dyn>(P * K)}, ae.posterior(ctx, as_vector(tokens)).mean);
    index_t right = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) right += tokens[i] == decoded[i];
    auto const e = evaluate_autoencoder(ctx, ae, tokens, special.pad, 3);
    BOOST_TEST(e.token_accuracy == static_cast<double>(right) / (P * K));
    BOOST_TEST(e.posterior_std > 0.0);
    BOOST_TEST(e.cross_entropy > 0.0);
    // One token counts where all others are PAD.
    std::vector<token_id> mostly(tokens.size(), special.pad);
    mostly[2] = tokens[2];
    auto const one = evaluate_autoencoder(ctx, ae, mostly, special.pad, 3);
    BOOST_TEST((one.token_accuracy == 0.0 || one.token_accuracy == 1.0));
    mostly[2] = special.pad;
    BOOST_TEST(code_of([&] { evaluate_autoencoder(ctx, ae, mostly, special.pad, 3); }) == static_cast<int>(errc::data));
    // An autoencoder alone predicts nothing.
    auto const alone = evaluate_model(ctx, ae, tokens, special, settings);
    BOOST_TEST(!alone.brier);
    BOOST_TEST(alone.token_accuracy.value() == e.token_accuracy);
    BOOST_TEST(to_json(alone).find("\"positions\":null") != std::string::npos);
    // More patches than one chunk holds: equals the mean over patches scored one at a time, each with the noise of its
    // number.
    auto const many = random_blocks(100);
    auto const all = evaluate_autoencoder(ctx, ae, many, special.pad, 3);
    double with_noise = 0, loss = 0;
    for (std::size_t p = 0; p < 100 * P; ++p) {
        autoencoder_scoring by_itself(ctx, ae, special.pad, 3);
        by_itself.add(static_cast<index_t>(p), std::span(many).subspan(p * static_cast<std::size_t>(K), K));
        auto const patch = by_itself.result();
        with_noise += patch.token_accuracy_posterior / (100 * P);
        loss += patch.cross_entropy / (100 * P);
    }
    BOOST_TEST(all.token_accuracy_posterior == with_noise, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(all.cross_entropy == loss, boost::test_tools::tolerance(1e-6));
    auto const first = std::span<token_id const>(many).first(512 * static_cast<std::size_t>(K));
    BOOST_TEST(evaluate_autoencoder(ctx, ae, first, special.pad, 3).cross_entropy != all.cross_entropy);
}

BOOST_AUTO_TEST_CASE(a_decoded_pad_is_no_right_token) {
    // With a table of zeros all logits are equal, and the lowest id is the answer.
    random_model r;
    auto& table = r.model.ae_model.embed_tokens.weight.value;
    std::fill_n(table.data(), table.size(), 0.0F);
    context<> ctx(1, 2);
    std::vector<token_id> const tokens{0, 1, 0, 2, 0, 0, 3, 0};
    auto const counted = evaluate_autoencoder(ctx, r.model.ae_model, tokens, 3, 1);
    BOOST_TEST(counted.token_accuracy == 5.0 / 7);
    BOOST_TEST(counted.token_accuracy_posterior == 5.0 / 7);
    BOOST_TEST(counted.cross_entropy == std::log(static_cast<double>(V)), boost::test_tools::tolerance(1e-6));
    auto const pads = evaluate_autoencoder(ctx, r.model.ae_model, tokens, 0, 1);
    BOOST_TEST(pads.token_accuracy == 0.0);
    BOOST_TEST(pads.token_accuracy_posterior == 0.0);
}

BOOST_AUTO_TEST_CASE(evaluations_that_are_impossible_are_errors) {
    random_model r;
    context<> ctx(1, 1);
    auto const blocks = random_blocks(2);
    auto const code = [&](std::span<token_id const> tokens, evaluation_settings const& s,
                          bigram_table const* table = nullptr) {
        return static_cast<errc>(code_of([&] { evaluate_model(ctx, r.model, tokens, special, table, s); }));
    };
    BOOST_TEST((code(blocks, {.block_tokens = P * K + 1}) == errc::config));
    BOOST_TEST((code(blocks, {.block_tokens = K}) == errc::config));
    BOOST_TEST((code(std::span(blocks).first(5), settings) == errc::data));
    BOOST_TEST((code({}, settings) == errc::data));
    BOOST_TEST((code(blocks, {.block_tokens = P * K, .samples = 1}) == errc::usage));
    bigram_table const other(98, blocks);
    BOOST_TEST((code(blocks, settings, &other) == errc::data));
    auto wrong = blocks;
    wrong.back() = V;
    BOOST_TEST((code(wrong, settings) == errc::tokenizer));
    BOOST_TEST((code(blocks, {.block_tokens = P * K, .positions = -1}) == errc::usage));
}

BOOST_AUTO_TEST_CASE(samples_at_a_temperature_are_the_samplers_and_are_counted) {
    random_model r;
    auto const blocks = random_blocks(2);
    context<> ctx(1, 2);
    auto const at = [&](sampler const& rule) {
        return evaluate_model(ctx, r.model, blocks, special, nullptr,
                              {.block_tokens = P * K, .samples = 3, .seed = 5, .sampler = rule});
    };
    auto const plain = at(sampler::adaptive({}));
    BOOST_TEST(*plain.draws_per_patch == 1.0);
    BOOST_TEST(plain.temperature == 1.0);
    BOOST_TEST(to_json(at(sampler::noise({}))).starts_with(to_json(plain).substr(0, to_json(plain).find("sampler"))));
    auto const half = temperature::of(0.5);
    auto const batch = at(sampler::batch(half, 6));
    BOOST_TEST(*batch.draws_per_patch == 6.0);
    BOOST_TEST(batch.temperature == 0.5);
    BOOST_TEST(batch.sampler == "batch");
    auto const exact = at(sampler::exact(half, 4));
    BOOST_TEST(*exact.draws_per_patch > 1.9);
    BOOST_TEST(*exact.draws_per_patch <= 4.0);
    BOOST_TEST((*exact.draws_per_patch == 2.0 || exact.capped > 0));
    BOOST_TEST((*batch.brier != *plain.brier));
}

BOOST_AUTO_TEST_CASE(an_evaluation_is_one_json_object_and_a_table) {
    evaluation e;
    e.brier = brier_scores{0.5, 0.25, 0.125, 0.0625};
    e.brier_lm = 17.5;
    e.positions = 10;
    e.sequences = 1;
    e.block = 256;
    e.samples = 8;
    e.seed = 3;
    e.head_loss = 1.5;
    BOOST_TEST(to_json(e) ==
               R"({"brier":[0.5,0.25,0.125,0.0625],"brier_se":null,"brier_lm":17.5,"brier_lm_se":null,"positions":10,)"
               R"("sequences":1,"skipped":0,"block":256,"mode":"padded","samples":8,"seed":3,"unigram_brier":null,)"
               R"("bigram_brier":null,"bigram_brier_lm":null,"optimal_brier":null,"optimal_brier_lm":null,)"
               R"("head_loss":1.5,"cross_entropy":null,"perplexity":null,"bits_per_byte":null,"bits_per_byte_se":null,)"
               R"("token_accuracy":null,"token_accuracy_posterior":null,"posterior_std":null,)"
               R"("temperature":1,"sampler":"adaptive","draws_per_patch":null,"capped":0,"patches":null})");
    auto const table = to_table(e);
    BOOST_TEST(table.find("17.50") != std::string::npos);
    BOOST_TEST(table.find("bigram") == std::string::npos);
    BOOST_TEST(!table.ends_with('\n'));
    BOOST_TEST(table.find("not positive") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_brier_lm_of_0_names_the_score_that_is_not_positive) {
    BOOST_TEST(not_positive({0.5, 0.2, 0.1, 1e-9}) == "");
    BOOST_TEST(not_positive({0.5, 0.2, 0.1, 0}) == "Brier-4 is not positive");
    BOOST_TEST(not_positive({0.5, 0.2, -0.1, 0}) == "Brier-3 and Brier-4 are not positive");
    BOOST_TEST(not_positive({-0.5, 0.2, -0.1, 0}) == "Brier-1, Brier-3 and Brier-4 are not positive");
    evaluation e;
    e.brier = brier_scores{0.5, 0.25, 0.125, -0.01};
    e.brier_lm = 0;
    BOOST_TEST(to_table(e).find("BrierLM is 0, without an error, because Brier-4 is not positive") !=
               std::string::npos);
    // A uniform model rarely hits its target, so with few samples some score is not positive.
    random_model r;
    context<> ctx(1, 2);
    auto const found = evaluate_model(ctx, r.model, random_blocks(3), special, nullptr, settings);
    BOOST_TEST(*found.brier_lm == 0.0);
    BOOST_TEST(found.brier_se.has_value());
    BOOST_TEST(!found.brier_lm_se.has_value());
    BOOST_TEST(to_json(found).find("\"brier_lm\":0,\"brier_lm_se\":null") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(more_samples_than_can_be_compared_are_refused) {
    random_model<> r;
    context<> ctx(1, 1);
    auto const blocks = random_blocks(1);
    for (index_t const n : {std::numeric_limits<index_t>::max(), index_t{1} << 61, limits::samples + 1}) {
        auto many = settings;
        many.samples = n;
        BOOST_TEST(code_of([&] { (void)evaluate_model(ctx, r.model, blocks, special, nullptr, many); }) == 2);
    }
}
