/* Prints every processor feature that the runtime knows by name, the level of x86-64 that
 * brings it, and whether this processor offers it. */
#include "cpu.c"

int main(void) {
  for (size_t i = 0; i < sizeof rb_cpu_features / sizeof rb_cpu_features[0]; ++i) {
    const char *name = rb_cpu_features[i].name;
    printf("%s %d %d\n", name, rb_cpu_features[i].level, rb_cpu_has(name, strlen(name)));
  }
  return 0;
}
