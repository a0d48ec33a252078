// Configurations that are compiled when they are first used, from --set and from the sizes of stored models.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plugin/chosen_sizes.hpp"
#include "support/programs.hpp"
#include "support/sentences.hpp"

using namespace calm::apps;
using calm::errc;
using calm::error;
using calm::test::has;
using calm::test::ran;
using calm::test::run_in;
using calm::test::sentence_of;
using calm::test::temporary_folder;

namespace fs = std::filesystem;

namespace {

namespace of_build {
#include "plugin_build.inc"  // NOLINT
}

// Runs programs with a cache of their own. Text and models are tiny: compiling takes most of the time.
class workshop {
public:
    workshop() { good("train tokenizer --vocabulary 300 --data stories:4000 --out words"); }
    ran run(std::string const& line) const {
        return run_in(folder, "export CALM_PLUGINS=$PWD/deep/cache; unset CALM_CONFIG; " + line);
    }
    ran good(std::string const& line) const {
        auto made = run(line);
        BOOST_REQUIRE_MESSAGE(made.status == 0, line + ": " + made.err);
        return made;
    }
    void is_refused(std::string const& line, int status, std::string const& says) const {
        auto const made = run(line);
        BOOST_TEST(made.status == status, line << ": " << made.err);
        BOOST_TEST(has(made.err, says), line << ": " << made.err);
    }
    // The files of the cache with this extension.
    std::vector<fs::path> cached(std::string const& extension) const {
        std::vector<fs::path> all;
        for (auto const& file : fs::directory_iterator(folder.path("deep/cache")))
            if (file.path().extension() == extension) all.push_back(file.path());
        return all;
    }
    temporary_folder folder;
};

std::size_t count(std::string const& text, std::string const& part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
}

std::string const compiling = "compiling tiny:patch_size=2,latent_size=16 for cpu";

}  // namespace

BOOST_AUTO_TEST_CASE(chosen_sizes_make_another_configuration) {
    auto const& tiny = calm_named("tiny");
    auto const one = with_sizes(tiny, "num_mlp_layers=4,latent_size=16,autoencoder.hidden_size=64,hidden_size=192");
    BOOST_TEST(one.name == "tiny:latent_size=16,autoencoder.hidden_size=64,hidden_size=192,num_mlp_layers=4");
    BOOST_TEST(one.calm().autoencoder.latent_size == 16);
    BOOST_TEST(one.calm().autoencoder.hidden_size == 64);
    BOOST_TEST(one.calm().hidden_size == 192);
    BOOST_TEST(one.calm().intermediate_size == tiny.calm().intermediate_size);
    BOOST_TEST(one.calm().head.sizes.find("num_mlp_layers")->value == 4);
    BOOST_TEST(one.on_demand);
    BOOST_TEST(with_sizes(tiny, "hidden_size=0128").name == "tiny");
    BOOST_TEST(with_sizes(tiny, " patch_size = 2, latent_size=16 ").name == "tiny:patch_size=2,latent_size=16");
    BOOST_TEST(with_sizes(tiny, "patch_size=1,patch_size=2").name == "tiny:patch_size=2");
    BOOST_TEST(&configuration_named("tiny:hidden_size=128") == &tiny);
    BOOST_TEST(&configuration_named("tiny:input=both,patch_size=2") ==
               &configuration_named("tiny:patch_size=2,input=both"));

    auto const flow = with_sizes(tiny, "head_type=flow");
    BOOST_TEST(flow.calm().head.name() == "flow");
    BOOST_TEST(flow.calm().head.sizes.find("num_mlp_layers")->value == 3);
    BOOST_TEST(flow.defaults.calm.objective.fields.find_option("samples") != nullptr);
    BOOST_TEST(flow.defaults.calm.objective.fields.find_option("targets") == nullptr);
}

BOOST_AUTO_TEST_CASE(sizes_that_cannot_be_are_refused) {
    auto const refusal = [](std::string const& text) {
        return sentence_of<error>([&] { static_cast<void>(with_sizes(calm_named("tiny"), text)); });
    };
    BOOST_TEST(has(refusal("patch_size=0"), "--set patch_size: expected a whole number from 1 to 1024, found '0'"));
    BOOST_TEST(has(refusal("hidden_size=262145"), "from 1 to 262144, found '262145'"));
    BOOST_TEST(has(refusal("hidden_size=99999999999999999999"), "found '99999999999999999999'"));
    BOOST_TEST(has(refusal("patch_size=2};"), "found '2};'"));
    BOOST_TEST(has(refusal("patch_size"), "expected KEY=VALUE,..., found 'patch_size'"));
    BOOST_TEST(has(refusal("patch_size= "), "expected KEY=VALUE,..., found 'patch_size= '"));
    BOOST_TEST(has(refusal("patch_siez=2"), "no such size"));
    BOOST_TEST(has(refusal("patch_siez=2"), "did you mean patch_size?"));
    BOOST_TEST(has(refusal("vocab_size=2"), "no such size"));
    BOOST_TEST(has(refusal("head_type=flwo"), "did you mean flow?"));
    BOOST_TEST(has(refusal("num_attention_heads=3"), "expected num_attention_heads to divide hidden_size"));
    BOOST_TEST(has(refusal("autoencoder.num_encoder_layers=3"), "expected even numbers of encoder and decoder layers"));
}

BOOST_AUTO_TEST_CASE(a_folder_takes_a_name_of_any_length) {
    BOOST_TEST(folder_name("tiny:patch_size=2") == "tiny:patch_size=2");
    std::string const name(300, 'x');
    BOOST_TEST(folder_name(name + "1").size() == 200);
    BOOST_TEST(folder_name(name + "1") != folder_name(name + "2"));
}

BOOST_AUTO_TEST_CASE(a_chosen_size_is_compiled_once_and_then_found) {
    workshop const shop;
    std::string const on = " --tokenizer words --data stories:4000 --batch 64 --steps 1 --out ";
    // Two at once: one compiles and the other waits for it.
    auto const both = shop.good("train autoencoder --config tiny --set latent_size=16,patch_size=2" + on +
                                "ae & first=$!; train autoencoder --config tiny:patch_size=2 --set latent_size=16" +
                                on + "ae2 && wait $first");
    BOOST_TEST(count(both.err, compiling) == 1, both.err);
    BOOST_TEST(has(both.err, compiling + ", which takes about a minute; it is kept in "), both.err);
    BOOST_TEST(has(both.err, "/deep/cache, and later runs load it\n"), both.err);
    BOOST_TEST(shop.cached(".so").size() == 2);  // for evaluation and generation, and for training
    auto const permissions = fs::status(shop.folder.path("deep/cache")).permissions();
    BOOST_TEST((permissions == fs::perms::owner_all));

    std::string const calm = "train calm --config tiny --set patch_size=2,latent_size=16 --autoencoder ae "
                             "--data stories:4000 --batch 2 --block 64 --out model --steps ";
    BOOST_TEST(!has(shop.good(calm + "1").err, "compiling"));
    BOOST_TEST(has(shop.good(calm + "2").err, "resumes after step 1"));
    auto const text = shop.good("generate --model model --max-tokens 4");
    BOOST_TEST(!has(text.err, "compiling"));
    BOOST_TEST(!has(shop.good("evaluate --model ae --data stories:1000").err, "compiling"));
    BOOST_TEST(has(shop.good("inspect model").out, "tiny:patch_size=2,latent_size=16, compiled when it is first used"));

    // Without a plug-in generation compiles neither training nor evaluation. A damaged one is never loaded.
    shop.good("rm deep/cache/*.so deep/cache/*.sha256");
    auto const first = shop.good("generate --model model --max-tokens 4");
    BOOST_TEST(has(first.err, compiling + ", which takes about half a minute; "), first.err);
    auto const library = shop.cached(".so").at(0).string();
    shop.good("grep -q calm_generating " + fs::path(library).replace_extension(".cpp").string());
    shop.good("printf x | dd of=" + library + " bs=1 seek=4096 conv=notrunc");
    auto const again = shop.good("generate --model model --max-tokens 4");
    BOOST_TEST(has(again.err, "damaged, so it is compiled again"), again.err);
    BOOST_TEST((first.out == text.out && again.out == text.out));
    BOOST_TEST(!has(shop.good("generate --model model --max-tokens 4").err, "compiling"));
    BOOST_TEST(shop.cached(".so").size() == 1);
    shop.is_refused("(ulimit -t 1; " + calm + "3)", 3, compiling);

    // Nor is a plug-in of other sizes. Those are only named here: the compiler needs more than a second.
    std::string const others = "(ulimit -t 1; train autoencoder --config tiny --set patch_size=1" + on + "ae1)";
    shop.is_refused(others, 3, "does not compile");
    for (auto const& source : shop.cached(".cpp"))
        if (!fs::exists(fs::path(source).replace_extension(".so")))
            for (std::string const extension : {".so", ".sha256"})
                fs::copy_file(fs::path(library).replace_extension(extension),
                              fs::path(source).replace_extension(extension));
    BOOST_TEST(shop.cached(".so").size() == 5);
    shop.is_refused(others, 3, "damaged, so it is compiled again");

    // A cache that others can write is not used.
    shop.is_refused("chmod 770 deep/cache && generate --model model", 10, "chmod 700");
    shop.is_refused("chmod 700 deep/cache && mv deep/cache d && ln -s ../d deep/cache && generate --model model", 10,
                    "expected a directory of yours");
}

// The sizes of a published directory have no name: only the directory states them.
BOOST_AUTO_TEST_CASE(a_published_model_of_other_sizes_is_trained_further) {
    workshop const shop;
    std::string const text = " --data stories:4000 --batch 2 --block 32";
    shop.good("train ar --config tiny-ar --set num_hidden_layers=1,hidden_size=64 --tokenizer words" + text +
              " --steps 1 --out llama");
    auto config = nlohmann::json::parse(shop.folder.content("llama/config.json"));
    config.erase("calm");
    static_cast<void>(shop.folder.with("llama/config.json", config.dump()));
    std::string const further = "train ar --init llama" + text + " --out further --steps ";
    BOOST_TEST(has(shop.good(further + "1").err, "llama: "));
    BOOST_TEST(has(shop.good(further + "2").err, "resumes after step 1"));
    BOOST_TEST(
        !has(shop.good("generate further --max-tokens 4; evaluate further --data stories:1000").err, "compiling"));
    BOOST_TEST(has(shop.good("inspect further").out, "llama, compiled when it is first used"));
}

BOOST_AUTO_TEST_CASE(what_prevents_compiling_is_reported) {
    workshop const shop;
    std::string const training = " autoencoder --config tiny --set patch_size=2 --tokenizer words --data stories:4000 "
                                 "--steps 1 --out ae";
    // The same program, built by another compiler whose path is as long.
    std::string gone = CALM_COMPILER;
    gone.back() = '_';
    shop.good("sed 's|" CALM_COMPILER "|" + gone + "|g' $(command -v train) >train-orphan && chmod +x train-orphan");
    auto const orphan = shop.run("./train-orphan" + training);
    BOOST_TEST(orphan.status == 3, orphan.err);
    BOOST_TEST(has(orphan.err, "the compiler that built this program is missing: install it"), orphan.err);
    BOOST_TEST(has(orphan.err, "Or write this as apps/configs/mine.cpp"), orphan.err);
    BOOST_TEST(has(orphan.err, ".patch_size = 2,"), orphan.err);

    // The compiler fails: it needs more than a second.
    shop.is_refused("(ulimit -t 1; train" + training + ")", 3,
                    ".log: the configuration tiny:patch_size=2 does not compile, exit status 1: ");

    // Another precision of a configuration of the program is compiled too.
    auto const in_bf16 = shop.run("(ulimit -t 1; generate --prompt Mia --dtype bf16)");
    BOOST_TEST(in_bf16.status == 3, in_bf16.err);
    BOOST_TEST(has(in_bf16.err, "compiling tiny for cpu-bf16, which takes about half a minute; "), in_bf16.err);
    BOOST_TEST(has(in_bf16.err, ".log: the configuration tiny does not compile, exit status 1: "), in_bf16.err);

    shop.is_refused("CALM_PLUGINS=/dev/null/cache train" + training, 10, "/dev/null/cache");
    shop.is_refused("train autoencoder --config tiny --set patch_size=2000 --tokenizer words --data stories:4000 "
                    "--steps 1 --out ae",
                    2, "--set patch_size: expected a whole number from 1 to 1024, found '2000'");
    BOOST_TEST(shop.cached(".so").empty());
}

// nvcc and the driver are stand-ins: nvcc would compile for minutes, and few machines have a GPU.
BOOST_AUTO_TEST_CASE(sizes_are_compiled_for_a_gpu_by_nvcc) {
    workshop const shop;
    std::string const training = " autoencoder --config tiny --set patch_size=2 --tokenizer words --data stories:4000 "
                                 "--steps 1 --out ae --device ";
    std::string const plan = "train text --config tiny:patch_size=2 --data stories:4000 --out text --dry-run --device ";
    std::string const nvcc = of_build::nvcc;
    if (nvcc.empty()) {
        for (auto const& line : {"train" + training, plan})
            shop.is_refused(line + "cuda", 3, "this program was built without CUDA");
        shop.is_refused("train" + training + "cuda", 3, "-DCALM_CONFIGS=\"mine;mine@cuda\"");
        shop.is_refused("generate --prompt Mia --device cuda", 3, "-DCALM_CONFIGS=\"tiny;tiny@cuda\"");
        return;
    }
    static_cast<void>(shop.folder.with("driver.cpp", "extern \"C\" int cuInit(unsigned) { return 0; }\n"
                                                     "extern \"C\" int cuDeviceGetCount(int* n) {\n"
                                                     "    *n = GPUS;\n    return 0;\n}\n"));
    for (std::string const gpus : {"0", "1"})
        shop.good("mkdir gpus" + gpus + " && " CALM_COMPILER " -shared -fPIC -DGPUS=" + gpus + " driver.cpp -o gpus" +
                  gpus + "/libcuda.so.1");
    std::string const of_program = "train autoencoder --config tiny --tokenizer words --data stories:4000 --steps 1 "
                                   "--out ae --device ";
    for (auto const& line : {"train" + training, plan, of_program}) {
        shop.is_refused("LD_LIBRARY_PATH=gpus0 " + line + "cuda", 11, "no GPU: the driver of NVIDIA finds none; leave");
        shop.is_refused("LD_LIBRARY_PATH=gpus1 " + line + "cuda:1", 11, "no GPU 1: this machine has GPUs 0 to 0");
    }
    BOOST_TEST(has(shop.good("LD_LIBRARY_PATH=gpus1 " + plan + "cuda").out, "tiny:patch_size=2"));
    BOOST_TEST(!fs::exists(shop.folder.path("deep/cache")));

    // The same program with another nvcc, whose path is as long.
    std::string const own = "./" + std::string(nvcc.size() - 2, 'n');
    shop.good("sed 's|" + nvcc + "|" + own + "|g' $(command -v train) >train-gpu && chmod +x train-gpu");
    std::string const on_gpu = "LD_LIBRARY_PATH=gpus1 ./train-gpu" + training + "cuda";
    shop.is_refused(on_gpu, 3, own + ": the compiler that built this program is missing");
    static_cast<void>(shop.folder.with(own, "#!/bin/sh\necho error: stand-in\nexit 1\n"));
    shop.is_refused("chmod +x " + own + "; " + on_gpu, 3, "does not compile, exit status 1: error: stand-in");
    for (auto const& log : shop.cached(".log")) {
        auto const command = shop.good("head -n 1 " + log.string()).out;
        for (auto const& word : {own, std::string("--expt-relaxed-constexpr"), log.stem().string() + ".cu"})
            BOOST_TEST(has(command, word), command);
    }

    // A plug-in for the cpu has other names than one for cuda.
    shop.is_refused("(ulimit -t 1; train" + training + "cpu)", 3, "does not compile");
    auto const on_cpu = shop.cached(".cpp"), by_nvcc = shop.cached(".cu");
    BOOST_TEST(on_cpu.size() == 2U);
    BOOST_TEST(by_nvcc.size() == 2U);
    for (auto const& one : on_cpu)
        for (auto const& other : by_nvcc) BOOST_TEST(one.stem() != other.stem());
}

BOOST_AUTO_TEST_CASE(an_installed_program_needs_its_own_headers_next_to_it) {
    workshop const shop;
    std::string const sources = CALM_FIXTURES_DIR "/../..";
    shop.good("mkdir -p home/bin home/include && cp $(command -v train) home/bin && cp -r " + sources +
              "/include/calm home/include && cp -r " + sources + "/apps home/include/calm-programs");
    std::string const training = "home/bin/train autoencoder --config tiny --set patch_size=2 --tokenizer words "
                                 "--data stories:4000 --steps 1 --out ae";
    shop.good("mv home/include/calm-programs/registry.hpp kept.hpp");
    shop.is_refused(training, 3, "home/include/calm-programs/registry.hpp: expected a header of this program, found");
    shop.good("mv kept.hpp home/include/calm-programs/registry.hpp && echo >>home/include/calm/version.hpp");
    shop.is_refused(training, 3, "home/include/calm/version.hpp: not the header that this program was built with");
}
