// Directories of models with heads other than the energy head.
#include <boost/mpl/list.hpp>

#include <algorithm>

#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/stored_model.hpp"
#include "support/heads.hpp"
#include "support/sentences.hpp"
#include "support/temporary_folder.hpp"

using namespace calm;
using namespace calm::test;

namespace {

template <class Head> struct model_with { static constexpr configuration<Head> value = with_head(uneven, Head{}); };
// Uses a number of blocks that differs from the default.
template <> struct model_with<flow> {
    static constexpr configuration<flow> value = with_head(uneven, flow{.num_mlp_layers = 3});
};
using heads = boost::mpl::list<flow, diffusion, margin, drafted>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(a_model_comes_back_from_its_directory, head, heads) {
    constexpr configuration<head> C = model_with<head>::value;
    owned_model<calm_model<C>> w(7, model_mode::inference), other(7, model_mode::inference);
    context<> const ctx(3, 1);
    initialise(ctx, w.model);
    initialise(ctx, w.model.ae_model);
    temporary_folder const folder;
    calm_description ours;
    ours.configuration = "uneven";
    save_model(folder.path("model"), w.model, describe_model<C>(7, {.samples = 5}, {}, ours));

    auto const from = read_model_description(folder.path("model"));
    BOOST_TEST(matches(C, from));
    BOOST_TEST((from.sizes.head == any_head(C.head)));
    BOOST_TEST(from.description.model_type == head::name);
    BOOST_TEST(from.description.architectures[0] == head::architecture);
    BOOST_TEST(static_cast<typename head::objective>(head_objective_of(from.description)).samples == 5);
    load_model(from, other.model);
    BOOST_TEST((weights_of(other.model) == weights_of(w.model)));
    auto const file = safetensors_file::open(folder.path("model/model.safetensors"));
    BOOST_TEST(std::ranges::any_of(file.tensors(),
                                   [](auto const& tensor) { return tensor.name.starts_with("mlp_generator."); }));
}

// A model with equal sizes but another head refuses the file and names the file's head.
BOOST_AUTO_TEST_CASE(a_model_with_another_head_is_refused_by_name) {
    constexpr auto C = with_head(uneven, flow{.num_mlp_layers = 2});
    owned_model<calm_model<C>> w(7, model_mode::inference);
    context<> const ctx(3, 1);
    initialise(ctx, w.model);
    initialise(ctx, w.model.ae_model);
    temporary_folder const folder;
    save_model(folder.path("model"), w.model, describe_model<C>(7, {.samples = 5}, {}, {}));
    auto const from = read_model_description(folder.path("model"));
    BOOST_TEST(!matches(with_head(uneven, diffusion{.num_mlp_layers = 2}), from));
    owned_model<calm_model<with_head(uneven, diffusion{.num_mlp_layers = 2})>> other(7, model_mode::inference);
    try {
        load_model(from, other.model);
        BOOST_ERROR("expected an error");
    } catch (error const& wrong) {
        BOOST_TEST((wrong.code() == errc::config));
        BOOST_TEST(has(wrong.what(), "head: expected 'diffusion', found 'flow'"), wrong.what());
    }
}

// A program finds a file's head by either of its names.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_head_is_found_by_its_names, head, heads) {
    BOOST_REQUIRE(find_head(head::name) != nullptr);
    BOOST_TEST(find_head(head::name) == find_head(head::architecture));
    BOOST_TEST((any_head(*find_head(head::name)) == any_head(head{})));
    auto const flops = any_head(head{}).flops({12, 4});
    BOOST_TEST(flops.shared == head{}.flops({12, 4}).shared);
    BOOST_TEST(flops.drawn == head{}.flops({12, 4}).drawn);
}
