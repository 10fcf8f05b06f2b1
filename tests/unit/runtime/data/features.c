/* Prints every processor feature that the runtime knows by name, and whether this processor offers it. */
#include "runtime.c"

int main(void) {
  for (size_t i = 0; i < sizeof rb_cpu_features / sizeof rb_cpu_features[0]; ++i) {
    const char *name = rb_cpu_features[i].name;
    printf("%s %d\n", name, rb_cpu_has(name, strlen(name)));
  }
  return 0;
}
