# The generator of plain C needs nothing but the compiler.
relaybuild_flag_choices(USE_CODEGENC OFF ON)
relaybuild_backend(codegen_c FLAG USE_CODEGENC)
