// After the first training step nothing calls malloc: checked over the ten steps that follow.

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "calm/model/autoregressive.hpp"
#include "calm/model/heads/drafted.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/train/loop.hpp"
#include "support/small.hpp"

namespace {

std::atomic<std::size_t> allocations = 0;

}  // namespace

// glibc's allocators, counted. operator new uses them too.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* from, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
// NOLINTEND(readability-identifier-naming)

void* malloc(std::size_t size) {
    ++allocations;
    return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
    ++allocations;
    return __libc_calloc(count, size);
}
void* realloc(void* from, std::size_t size) {
    ++allocations;
    return __libc_realloc(from, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    ++allocations;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** at, std::size_t alignment, std::size_t size) {
    ++allocations;
    *at = __libc_memalign(alignment, size);
    return *at == nullptr ? ENOMEM : 0;
}
}

using namespace calm;

namespace {

// Wide enough that products pack their factors, which takes memory.
inline constexpr configuration<> wide{
    .autoencoder = {.vocab_size = 300, .patch_size = 2, .hidden_size = 256, .intermediate_size = 320, .latent_size = 8},
    .hidden_size = 256,
    .intermediate_size = 320,
    .num_hidden_layers = 1,
    .num_attention_heads = 2,
    .num_key_value_heads = 1,
    .head = {.num_mlp_layers = 1, .noise_size = 8}};
using model_type = calm_model<wide>;
inline constexpr auto drafting = with_head(wide, drafted{.num_mlp_layers = 1, .noise_size = 8});
using tokens_model = autoregressive_model<autoregressive_configuration{.llama = llama_sizes_of(wide)}>;

// A source whose number of unique ids differs between steps.
struct uneven_source {
    std::uint32_t state = 1;
    void operator()(std::span<token_id> tokens) {
        std::uint32_t const some = 20 + state % 280;
        for (auto& t : tokens) {
            state = state * 1664525U + 1013904223U;
            t = static_cast<token_id>((state >> 8) % some);
        }
    }
};

// Allocations in the ten steps after the first.
struct ten_steps {
    std::size_t before = 0;
    std::size_t after = 0;
    training_callbacks calls() {
        training_callbacks callbacks;
        callbacks.step = [this](progress const& now) {
            if (now.step == 0) before = allocations;
            if (now.step == 10) after = allocations;
        };
        return callbacks;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE(allocations_are_counted) {
    std::size_t const before = allocations;
    std::free(std::malloc(100));
    delete new int(3);
    BOOST_TEST(allocations >= before + 2);
}

BOOST_AUTO_TEST_CASE(steps_of_an_autoencoder_allocate_nothing) {
    for (int const threads : {1, 2}) {
        owned_model<model_type::autoencoder_type> own(wide.autoencoder.vocab_size);
        context<> ctx(3, threads);
        initialise(ctx, own.model);
        autoencoder_recipe r;
        r.steps = 12;
        r.batch_tokens = 512;
        r.accumulation = 2;
        r.random_patches = 0.1;
        ten_steps steps;
        train_autoencoder(ctx, own.model, uneven_source{}, r, steps.calls());
        BOOST_TEST(steps.after == steps.before);
    }
}

// Steps with few samples and targets per position.
template <class Model> void check_language_model() {
    for (int const threads : {1, 2}) {
        owned_model<Model> own(wide.autoencoder.vocab_size);
        context<> ctx(3, threads);
        initialise(ctx, own.model);
        initialise(ctx, own.model.ae_model);
        calm_recipe<typename Model::objective> r;
        r.steps = 12;
        r.sequences = 8;
        r.block_tokens = 128;
        r.objective.samples = 4;
        r.objective.targets = 12;
        ten_steps steps;
        train_calm(ctx, own.model, uneven_source{}, r, steps.calls());
        BOOST_TEST(steps.after == steps.before);
    }
}

BOOST_AUTO_TEST_CASE(steps_of_a_language_model_allocate_nothing) {
    check_language_model<model_type>();
    check_language_model<calm_model<drafting>>();
}

BOOST_AUTO_TEST_CASE(steps_of_a_model_of_tokens_allocate_nothing) {
    for (int const threads : {1, 2}) {
        owned_model<tokens_model> own(wide.autoencoder.vocab_size);
        context<> ctx(3, threads);
        initialise(ctx, own.model);
        autoregressive_recipe r;
        r.steps = 12;
        r.sequences = 8;
        r.block_tokens = 128;
        ten_steps steps;
        train_autoregressive(ctx, own.model, uneven_source{}, r, steps.calls());
        BOOST_TEST(steps.after > 0U);
        BOOST_TEST(steps.after == steps.before);
    }
}
