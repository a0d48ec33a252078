# Programs that run on every x86-64 processor and use the instructions that it has: compiled once per instruction-set
# level.

# calm_levels(OUT): the levels, best first: AVX-512 with int8 and bf16 dot products, then the levels of the x86-64 ABI.
function(calm_levels out)
    set(${out} x86-64-v4-bf16 x86-64-v4 x86-64-v3 x86-64 PARENT_SCOPE)
endfunction()

# calm_level_options(OUT LEVEL): the compiler options of a level.
function(calm_level_options out level)
    set(more)
    if(level STREQUAL "x86-64-v4-bf16")
        set(level x86-64-v4)
        set(more -mavx512vnni -mavx512bf16)
    endif()
    set(${out} -march=${level} -mtune=generic ${more} PARENT_SCOPE)
endfunction()

# calm_portable_executable(NAME SOURCE... [LIBRARIES LIBRARY...]): the program NAME starts the best of the programs
# NAME.<level> next to it that the processor supports; the environment variable CALM_INSTRUCTIONS selects another level.
# In LIBRARIES, LEVEL is replaced by the level, to link libraries that are also compiled once per level.
function(calm_portable_executable name)
    cmake_parse_arguments(PARSE_ARGV 1 own "" "" LIBRARIES)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        message(FATAL_ERROR "calm_portable_executable: expected an x86-64 processor, found ${CMAKE_SYSTEM_PROCESSOR}: "
                            "build ordinary programs here")
    endif()
    add_executable(${name} "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/calm-launcher.cpp")
    target_compile_features(${name} PRIVATE cxx_std_20)
    target_compile_options(${name} PRIVATE -march=x86-64 -mtune=generic)
    calm_levels(levels)
    foreach(level IN LISTS levels)
        set(program ${name}.${level})
        string(REPLACE LEVEL ${level} libraries "${own_LIBRARIES}")
        add_executable(${program} ${own_UNPARSED_ARGUMENTS})
        calm_level_options(options ${level})
        target_compile_options(${program} PRIVATE ${options})
        target_link_libraries(${program} PRIVATE ${libraries})
        add_dependencies(${name} ${program})
    endforeach()
endfunction()
