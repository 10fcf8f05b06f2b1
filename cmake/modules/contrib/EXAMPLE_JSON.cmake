# The interpreter of ExampleJSON is part of relaybuild and needs nothing but the compiler.
relaybuild_flag_choices(USE_EXAMPLE_JSON OFF ON)
relaybuild_backend(example_json FLAG USE_EXAMPLE_JSON)
