/* An int is too small for the second test. */
#include <stdio.h>

int main(void) {
    unsigned sum = 0;
    int number;
    while (scanf("%d", &number) == 1) sum += number;
    printf("%d\n", (int)sum);
}
