"""A first survey in Python: the built-in model, its sample text, three claims, one of them looked at closely.

python examples/first_survey.py
"""

import armillary

# Or a live transformers model, a folder, a .gguf file, a hub id; and your own text as the second argument. Without
# claims=… all are measured, which takes minutes.
survey = armillary.survey("builtin:gpt", claims="sphere.radius,sphere.plane,spectrum.two-zeros", progress=False)
print(survey)

zeros = survey["spectrum.two-zeros"]
print()
print(zeros.reading)
print(zeros.to_frame()[["site", "zeros_z", "algebra", "smallest"]].head())
