"""A first survey in Python: the built-in model, its sample text, one chapter, one claim looked at closely.

python examples/first_survey.py
"""

import armillary

# Or a live transformers model, a folder, a .gguf file, a hub id; and your own text as the second argument. Without
# quick=True more text is read, and intervals are narrower.
survey = armillary.survey("builtin:gpt", claims="A", quick=True, progress=False)
print(survey)

zeros = survey["spectrum.two-zeros"]
print()
print(zeros.reading)
print(zeros.to_frame()[["site", "zeros_z", "algebra", "smallest"]].head())
