# calm::calm needs Eigen and threads; calm::text and calm::io exist where their packages are.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PCRE2 QUIET)
find_package(simdjson QUIET)
find_package(ZLIB QUIET)
find_package(zstd QUIET)
find_package(nlohmann_json QUIET)

# calm_component(NAME PACKAGE_TARGET...): the interface target calm::NAME.
function(calm_component name)
    add_library(calm_${name} INTERFACE)
    add_library(calm::${name} ALIAS calm_${name})
    set_target_properties(calm_${name} PROPERTIES EXPORT_NAME ${name})
    target_link_libraries(calm_${name} INTERFACE ${ARGN})
endfunction()

calm_component(calm Eigen3::Eigen Threads::Threads)
target_compile_features(calm_calm INTERFACE cxx_std_20)
target_include_directories(
    calm_calm INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
# g++ notes how wide vectors are passed, which they never are: all that takes them is inlined.
target_compile_options(calm_calm INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi>)
if(PCRE2_FOUND AND simdjson_FOUND AND ZLIB_FOUND AND zstd_FOUND)
    calm_component(text calm_calm PCRE2::8BIT simdjson::simdjson ZLIB::ZLIB zstd::libzstd)
endif()
if(simdjson_FOUND AND nlohmann_json_FOUND)
    calm_component(io calm_calm simdjson::simdjson nlohmann_json::nlohmann_json)
endif()
